"""The sources of a model's parameters in the tensors of its checkpoint. No weight is kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from partc.config.sources import Adapter
from partc.errors import ModelError
from partc.frontend.adapters import merge_adapter
from partc.frontend.equal_tensors import equal_values
from partc.frontend.source import random_network
from partc.frontend.symbolic import SymbolicTensor
from partc.frontend.ties import tie_where_equal
from partc.frontend.unused import CONFIG, explain_unused, settings_of
from partc.ir.graph import ModelInfo
from partc.ir.types import BY_LONG, BY_SHORT, ElementType
from partc.ir.weights import Array, Leaf, Step, WeightExpr, materialize

_Shapes = Mapping[str, tuple[int, ...]]
RANDOM_FILE = "<random>"
"""The file that references of a model with random weights name."""


class Weights:
    """The sources of a model with random weights: every parameter is its own."""

    def fit(self, network: PreTrainedModel) -> dict[str, WeightExpr]:
        """The source of each parameter of `network` by its name."""
        return {name: Leaf(RANDOM_FILE, name) for name in stored_names(network)}


Tensors = Callable[[PreTrainedModel], Mapping[str, SymbolicTensor]]
"""The tensors of a checkpoint by the names that transformers' checkpoints of this model have."""


class Checkpoint(Weights):
    """The sources of a model's parameters in the files of its folder.

    Follows transformers' own loading: renamings, the base model's prefix, at most one converter a tensor. Parameters
    that the config ties share a source where their tensors are equal. Every tensor of the checkpoint is used, known to
    be of no use for this model (`partc.frontend.unused`), or named in an error.
    """

    def __init__(
        self,
        tensors: Tensors,
        read: Callable[[Leaf], Array],
        place: Path,
        ignored: Sequence[str] = (),
        adapters: Sequence[Adapter] = (),
    ) -> None:
        """Nothing is read yet.

        Args:
            tensors: the tensors of the checkpoint.
            read: reads one tensor of its files.
            place: the folder or the file that the user gave, for messages.
            ignored: patterns (`fnmatch`) of keys that the user leaves out.
            adapters: what is merged into the weights, in this order.
        """
        self._adapters = adapters
        self._tensors = tensors
        self._read = read
        self._place = place
        self._ignored = ignored
        # The same network may be made several times, until one way of tracing it succeeds.
        self._equal = cache(self._compare)

    def fit(self, network: PreTrainedModel) -> dict[str, WeightExpr]:
        """The source of each parameter of `network` by its name; parameters that differ are no longer tied in it.

        Raises:
            ModelError: a parameter has no tensor, two, or one of another shape, or a tensor has no parameter; names
                the keys.
        """
        stored = self._tensors(network)
        located = locate(network, stored)
        for name, keys in located.clashes.items():
            self._refuse_clash(name, keys, stored)
        for adapter in self._adapters:
            merge_adapter(network, located.tensors, adapter)
        short = element_type(next(network.parameters())).short
        values = tie_where_equal(
            network, located.tensors, lambda a, b: self._equal(a.expr, b.expr, short), self._place
        )
        unused = {key: stored[key].shape for key in located.unused}
        sources = self._sources(network, values, unused)
        explain_unused(network, unused, self._place, self._ignored, reached)
        return sources

    def _sources(
        self, network: PreTrainedModel, values: Mapping[str, SymbolicTensor], unused: _Shapes
    ) -> dict[str, WeightExpr]:
        parameters = stored_names(network)
        shared: dict[int, SymbolicTensor] = {}
        for name, parameter in parameters.items():
            if name in values:
                shared.setdefault(id(parameter), values[name])
        sources: dict[str, WeightExpr] = {}
        for name, parameter in parameters.items():
            source = values.get(name) or shared.get(id(parameter))
            if source is None:
                self._refuse_missing(network, name, parameter, unused)
                continue
            self._check_shape(name, source, tuple(parameter.shape))
            self._check_kind(name, source, parameter)
            sources[name] = _cast(source, element_type(parameter).short)
        return sources

    def _refuse_missing(
        self, network: PreTrainedModel, name: str, parameter: torch.Tensor, unused: _Shapes
    ) -> None:
        """Say why a parameter has no tensor: names that are not understood say more than the one that is missing."""
        explain_unused(network, unused, self._place, self._ignored, reached, only_known_faults=True)
        raise ModelError(
            f"the checkpoint has no tensor for {name} {list(parameter.shape)}",
            where=str(self._place),
            hint="write `tie_word_embeddings: true` in config.json if the head is the table of tokens"
            if _is_shaped_as_table(network, parameter) and settings_of(self._place) == CONFIG
            else "is it the checkpoint of this model, and of this task (a classifier needs a trained head)?",
        )

    def _check_shape(self, name: str, source: SymbolicTensor, shape: tuple[int, ...]) -> None:
        if source.shape != shape:
            raise ModelError(
                f"{name} should be {list(shape)} by {settings_of(self._place)}, "
                f"but is {list(source.shape)} in the checkpoint",
                where=str(self._place),
                hint="they do not belong together: download both again",
            )

    def _check_kind(self, name: str, source: SymbolicTensor, parameter: torch.Tensor) -> None:
        """Refuse whole numbers for a parameter that has fractions: they stand for something else."""
        if parameter.is_floating_point() and BY_SHORT[source.dtype].numpy.kind in "iub":
            raise ModelError(
                f"{name} is stored as whole numbers ({source.dtype})",
                where=str(self._place),
                hint="give the checkpoint that it was made from, in float32, float16 or bfloat16",
            )

    def _refuse_clash(self, name: str, keys: Sequence[str], stored: Mapping[str, SymbolicTensor]) -> None:
        first, *others = keys
        for other in others:
            if not self._equal(stored[first].expr, stored[other].expr, stored[first].dtype):
                raise ModelError(
                    f"{name} has two tensors, {first} and {other}, which differ",
                    where=str(self._place),
                    hint="remove the one that is not meant, or save the model again with save_pretrained",
                )

    def _compare(self, first: WeightExpr, second: WeightExpr, dtype: str) -> bool:
        return equal_values(first, second, dtype, self._read)


def stored_names(network: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors that a checkpoint of `network` holds, by name: parameters, tied ones too, and persistent buffers."""
    persistent = network.state_dict().keys()
    buffers = {name: buffer for name, buffer in network.named_buffers() if name in persistent}
    return {**dict(network.named_parameters(remove_duplicate=False)), **buffers}


def _is_shaped_as_table(network: PreTrainedModel, parameter: torch.Tensor) -> bool:
    """Whether a parameter is the head's, and might be the table of tokens."""
    head, table = network.get_output_embeddings(), network.get_input_embeddings()
    is_head = head is not None and getattr(head, "weight", None) is parameter
    return is_head and tuple(getattr(table, "weight", torch.empty(0)).shape) == tuple(parameter.shape)


def _cast(source: SymbolicTensor, dtype: str) -> WeightExpr:
    return source.expr if source.dtype == dtype else Step("cast", (dtype,), source.expr)


@dataclass
class Located:
    """The tensors of a checkpoint by the parameters that they make."""

    tensors: dict[str, SymbolicTensor] = field(default_factory=dict)
    """By the parameter's name."""
    clashes: dict[str, list[str]] = field(default_factory=dict)
    """Parameter → the keys of all tensors that are its own, where there are several."""
    unused: list[str] = field(default_factory=list)
    """Keys that make no parameter."""


class _Names:
    """Names that transformers gives the tensors of a checkpoint when it loads them into a network."""

    def __init__(self, network: PreTrainedModel) -> None:
        mapping = get_model_conversion_mapping(network)
        self.renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
        self.converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
        self.wanted = dict(network.state_dict())
        self.wanted.update(dict(network.named_parameters(remove_duplicate=False)))
        self.wanted.update(dict(network.named_buffers()))
        self.prefix = network.base_model_prefix

    def of(self, key: str) -> tuple[str, str | None]:
        """The parameter that a tensor belongs to, and the converter's pattern that takes it there."""
        name: str
        pattern: str | None
        name, pattern = rename_source_key(key, self.renamings, self.converters, self.prefix, self.wanted)
        if name not in self.wanted and key in self.wanted:
            name, pattern = rename_source_key(key, [], [], self.prefix, self.wanted)
        return name, pattern


def reached(network: PreTrainedModel, keys: Iterable[str]) -> set[str]:
    """Those of the keys that make a parameter of `network`."""
    names = _Names(network)
    return {key for key in sorted(keys, key=dot_natural_key) if names.of(key)[0] in names.wanted}


def locate(network: PreTrainedModel, stored: Mapping[str, SymbolicTensor]) -> Located:
    """Symbolic tensors by parameter name, made by transformers' own converters."""
    names, located = _Names(network), Located()
    by_pattern = {
        pattern: converter for converter in names.converters for pattern in converter.source_patterns
    }
    pending: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key in sorted(stored, key=dot_natural_key):
        name, pattern = names.of(key)
        if name not in names.wanted:
            located.unused.append(key)
            continue
        tensor = stored[key]
        if pattern is None:
            if name in keys:
                located.clashes.setdefault(name, [keys[name]]).append(key)
            keys[name] = key
            located.tensors[name] = tensor
            continue
        converter = pending.setdefault(name, deepcopy(by_pattern[pattern]))
        converter.add_tensor(name, key, pattern, lambda tensor=tensor: tensor)
    for name, converter in pending.items():
        result = converter.convert(name, model=network, config=network.config)
        located.tensors.update(
            {target: value[0] if isinstance(value, list) else value for target, value in result.items()}
        )
    return located


def fill(network: PreTrainedModel, weights: Checkpoint, read: Callable[[Leaf], Array]) -> None:
    """Give a network the values of a checkpoint, as this module reads them; one tensor is made at a time.

    Raises:
        ModelError: see `Checkpoint.fit`.
    """
    sources, parameters = weights.fit(network), stored_names(network)
    with torch.no_grad():
        for name, source in sources.items():
            values = np.ascontiguousarray(materialize(source, read).astype(np.float32))
            parameters[name].copy_(torch.from_numpy(values))


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
