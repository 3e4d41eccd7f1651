"""The sources of a model's parameters in the tensors of its checkpoint. Nothing is loaded here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from partc.errors import ModelError
from partc.frontend.safetensors import StoredTensor
from partc.frontend.source import random_network
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.graph import ModelInfo
from partc.ir.types import BY_LONG, BY_SHORT, ElementType
from partc.ir.weights import Array, Leaf, Step, WeightExpr

RANDOM_FILE = "<random>"
"""The file that references of a model with random weights name."""


def random_sources(parameters: Mapping[str, torch.Tensor]) -> dict[str, WeightExpr]:
    """References for a model with random weights: every parameter is its own source."""
    return {name: Leaf(RANDOM_FILE, name) for name in parameters}


def checkpoint_sources(
    network: PreTrainedModel,
    parameters: Mapping[str, torch.Tensor],
    stored: Mapping[str, StoredTensor],
    folder: Path,
) -> dict[str, WeightExpr]:
    """The source of each parameter of `network` in the checkpoint at `folder`, whose tensors are `stored`.

    Follows transformers' own loading: renamings, the base model's prefix, at most one converter a tensor; tied
    parameters share a source. A stored element type other than the parameter's own is cast.

    Raises:
        ModelError: a parameter has no tensor, or one of another shape; names file, key and both shapes.
    """
    found = _converted(network, stored)
    tied: dict[int, str] = {}
    for name in parameters:
        if name in found:
            tied.setdefault(id(parameters[name]), name)
    sources: dict[str, WeightExpr] = {}
    for name, parameter in parameters.items():
        source = found.get(name) or found.get(tied.get(id(parameter), ""))
        if source is None:
            raise ModelError(
                f"the checkpoint has no tensor for {name} {list(parameter.shape)}",
                where=str(folder),
                hint="is it the checkpoint of this model, and of this task (a classifier needs a trained head)?",
            )
        _check_shape(name, source, tuple(parameter.shape), folder)
        sources[name] = _cast(source, element_type(parameter).short)
    return sources


def _check_shape(name: str, source: SymbolicTensor, shape: tuple[int, ...], folder: Path) -> None:
    if source.shape == shape:
        return
    raise ModelError(
        f"{name} should be {list(shape)} by config.json, but is {list(source.shape)} in the checkpoint",
        where=str(folder),
        hint="config.json and the checkpoint do not belong together; download both again",
    )


def _cast(source: SymbolicTensor, dtype: str) -> WeightExpr:
    return source.expr if source.dtype == dtype else Step("cast", (dtype,), source.expr)


def _converted(network: PreTrainedModel, stored: Mapping[str, StoredTensor]) -> dict[str, SymbolicTensor]:
    """Symbolic tensors by parameter name, made by transformers' own converters."""
    mapping = get_model_conversion_mapping(network)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    wanted = dict(network.state_dict())
    wanted.update(dict(network.named_parameters(remove_duplicate=False)))
    wanted.update(dict(network.named_buffers()))
    prefix = network.base_model_prefix
    found: dict[str, SymbolicTensor] = {}
    pending: dict[str, Any] = {}
    for key in sorted(stored, key=dot_natural_key):
        name, pattern = rename_source_key(key, renamings, converters, prefix, wanted)
        if name not in wanted and key in wanted:
            name, pattern = rename_source_key(key, [], [], base_model_prefix=prefix, meta_state_dict=wanted)
        if name not in wanted:
            continue
        tensor = SymbolicTensor(Leaf(stored[key].file, key), stored[key].shape, stored[key].dtype)
        if pattern is None:
            found[name] = tensor
            continue
        converter = pending.setdefault(name, deepcopy(by_pattern[pattern]))
        converter.add_tensor(name, key, pattern, lambda tensor=tensor: tensor)
    for name, converter in pending.items():
        result = converter.convert(name, model=network, config=network.config)
        found.update(
            {target: value[0] if isinstance(value, list) else value for target, value in result.items()}
        )
    return found


def open_reader(info: ModelInfo) -> Callable[[Leaf], Array]:
    """Reads the parameters of a model with random weights; the model is made on first use, whole.

    Raises (when called):
        ModelError: the model has no random weights, or no such parameter.
    """
    made: dict[str, torch.Tensor] = {}

    def read(leaf: Leaf) -> Array:
        if info.random is None or leaf.file != RANDOM_FILE:
            raise ModelError(f"{leaf.file!r} is not a file that partc reads", where=f"weight {leaf.key}")
        if not made:
            network = random_network(dict(info.random), info.task, getattr(torch, BY_SHORT[info.dtype].long))
            made.update(network.named_parameters(remove_duplicate=False))
            made.update(network.named_buffers())
        if leaf.key not in made:
            raise ModelError(f"the model has no parameter {leaf.key!r}", where=RANDOM_FILE)
        return to_numpy(made[leaf.key])

    return read


def element_type(tensor: torch.Tensor) -> ElementType:
    """The IR's element type of a torch tensor."""
    return BY_LONG[str(tensor.dtype).removeprefix("torch.")]


def to_numpy(tensor: torch.Tensor) -> Array:
    """The values of a tensor; bfloat16 becomes ml_dtypes' bfloat16."""
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(BY_SHORT["bf16"].numpy)
    return plain.numpy()
