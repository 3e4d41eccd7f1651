"""Parameters that the config ties: shared where the checkpoint's tensors are equal, as transformers does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import PreTrainedModel

from partc.errors import ModelError
from partc.frontend.symbolic import SymbolicTensor

Equal = Callable[[SymbolicTensor, SymbolicTensor], bool]


def tie_where_equal(
    network: PreTrainedModel, found: Mapping[str, SymbolicTensor], equal: Equal, folder: Path
) -> dict[str, SymbolicTensor]:
    """The tensors of `found` and those that parameters without one get from the parameters that they are tied to.

    A parameter whose tensor differs from the one of its partner gets memory of its own in `network`. A fine-tuned
    checkpoint may say `tie_word_embeddings: true` and hold a head that was trained apart
    (huggingface/transformers#42612). The order is that of `PreTrainedModel.tie_weights`: a pair whose first name has
    no tensor is tied to the second, and where neither has one, to the next partner of the same name.
    """
    values = dict(found)
    ties: dict[str, str] = dict(getattr(network, "all_tied_weights_keys", None) or {})
    for target, source in ties.items():
        if target in values and source in values:
            if values[target].shape != values[source].shape:
                raise _unlike(target, source, values, folder)
            if values[target] is not values[source] and not equal(values[target], values[source]):
                _untie(network, target)
            continue
        partners = (source, *(other for other, at in ties.items() if at == source))
        given = next((values[name] for name in (target, *partners) if name in values), None)
        if given is not None:
            values.setdefault(target, given)
            values.setdefault(source, given)
    return values


def _untie(network: PreTrainedModel, name: str) -> None:
    """Give a parameter memory of its own; it is fake, so nothing is allocated."""
    path, _, key = name.rpartition(".")
    module = network.get_submodule(path)
    shared = module._parameters[key]
    assert shared is not None
    module._parameters[key] = torch.nn.Parameter(shared.detach().new_empty(shared.shape), requires_grad=False)
    network.all_tied_weights_keys.pop(name, None)


def _unlike(target: str, source: str, values: Mapping[str, SymbolicTensor], folder: Path) -> ModelError:
    return ModelError(
        f"config.json ties {target} to {source}, but the checkpoint has {list(values[target].shape)} "
        f"and {list(values[source].shape)} for them",
        where=str(folder),
        hint="write `tie_word_embeddings: false` in config.json if the model has a head of its own",
    )
