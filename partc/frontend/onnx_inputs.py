"""The inputs of an ONNX file as model.yaml fixes them: sizes, and values that are the same in all requests.

A size of an input can be named in `dims` by what is in the first column of this table; the first row that fits counts.

| name | size |
| --- | --- |
| `samples`, `p2o.DynamicDimension.1` | every size that the file calls so |
| `p2o_DynamicDimension_1` | the same as an identifier |
| `x.2`, `x_2` | axis 2 of the input `x` |

Sizes that the file gives no name, or only signs (`?`, `-1`), are independent of each other.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorShapeProto, ValueInfoProto, numpy_helper

from partc.config.model import ModelConfig
from partc.config.onnx_inputs import EXACTLY
from partc.errors import ModelError
from partc.frontend.onnx_names import SymbolNames, plain_name

_WORD = re.compile(r"[^\W\d]|\d*[^\W\d]")
_MOST_ELEMENTS = 1 << 16
"""Elements of a constant input; larger tensors are weights."""


@dataclass(frozen=True)
class OpenSize:
    """A size of an input that the file leaves open."""

    input: str
    axis: int
    text: str
    """The name that the file gives it; empty: none."""
    dim: TensorShapeProto.Dimension
    """Its place in the file."""

    @property
    def is_named(self) -> bool:
        """Whether the name says which sizes are the same; signs alone do not."""
        return _WORD.match(self.text.lstrip("_")) is not None if self.text else False

    @property
    def own(self) -> str:
        """The name by input and axis: `x.2`."""
        return f"{self.input}.{self.axis}"

    @property
    def advised(self) -> str:
        """The name to write in model.yaml, in quotes where YAML needs them."""
        name = self.text if self.is_named else self.own
        return name if re.fullmatch(r"[A-Za-z_][\w.]*", name, re.ASCII) else f'"{name}"'

    @property
    def words(self) -> tuple[str, ...]:
        """Names of `dims` that mean every size that the file calls so."""
        return (self.text, plain_name(self.text)) if self.is_named else ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of `dims` that mean it, the most exact one first."""
        by_place = (self.own, plain_name(f"{self.input}_{self.axis}"))
        by_text = (self.text, plain_name(self.text)) if self.text else ()
        return (*by_text, *by_place) if self.is_named else (*by_place, *by_text)

    @property
    def key(self) -> str:
        """A text that sizes share which are the same."""
        return self.text if self.is_named else f"{self.input}_{self.axis}"


def fix_inputs(model: onnx.ModelProto, config: ModelConfig, path: Path) -> dict[str, int]:
    """Write what `config` says about sizes and inputs into `model`; the largest value of every symbol that is left.

    Sizes that stay open get identifiers as names. The first size of an input is the batch, `max_batch` unless `dims`
    has it; all others must be in `dims`.

    Raises:
        ModelError: a name in model.yaml that the file does not have, a size without a limit, or a value that an input
            cannot have.
    """
    sizes = list(open_sizes(model))
    _check_names(model, sizes, config, path)
    _check_one_value(sizes, config, path)
    names = SymbolNames()
    limits: dict[str, int] = {}
    for size in sizes:
        key = next((key for key in size.keys if key in config.dims), None)
        if key is not None and key in config.exact:
            size.dim.dim_value = config.dims[key]
            continue
        symbol = names.symbol(size.key)
        size.dim.dim_param = symbol
        if key is None and size.axis > 0 and symbol not in limits and size.input not in config.inputs:
            raise _without_limit(size, path)
        if key is not None or size.axis == 0:
            limits.setdefault(symbol, config.max_batch if key is None else config.dims[key])
    for name, value in config.inputs.items():
        _fix_value(model, name, value, path)
    used = {dim.dim_param for value in given_inputs(model) for dim in value.type.tensor_type.shape.dim}
    return {symbol: limit for symbol, limit in limits.items() if symbol in used}


def given_inputs(model: onnx.ModelProto) -> list[ValueInfoProto]:
    """The inputs that a request brings: old files list their weights among the inputs, too."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def open_sizes(model: onnx.ModelProto) -> Iterator[OpenSize]:
    """The sizes of inputs that are no numbers, in the order of the file."""
    for value in given_inputs(model):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                yield OpenSize(value.name, axis, dim.dim_param, dim)


def constant_inputs(model: onnx.ModelProto, values: Mapping[str, object]) -> dict[str, npt.NDArray[Any]]:
    """The values of `inputs` in model.yaml as tensors for `model`, which still has these inputs."""
    kinds = {value.name: value for value in model.graph.input}
    return {name: _tensor(kinds[name], value) for name, value in values.items()}


def _check_names(model: onnx.ModelProto, sizes: list[OpenSize], config: ModelConfig, path: Path) -> None:
    known = {key for size in sizes for key in size.keys}
    for name in config.dims:
        if name not in known and (fixed := _fixed_size(model, name)) is not None:
            raise ModelError(
                f"the size {name!r}, which `dims` in model.yaml names, is always {fixed}",
                where=str(path),
                hint="remove it from `dims`",
            )
        if name not in known:
            has = ", ".join(dict.fromkeys(size.advised for size in sizes))
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean `{near[0]}`? " if near else ""
            raise ModelError(
                f"no input has a size {name!r}, which `dims` in model.yaml names",
                where=str(path),
                hint=f"{meant}its open sizes: {has}"
                if has
                else "all sizes of its inputs are fixed: remove it",
            )


def _fixed_size(model: onnx.ModelProto, name: str) -> int | None:
    """The size that the file itself gives the axis of an input called `name`."""
    for value in given_inputs(model):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if name in (f"{value.name}.{axis}", plain_name(f"{value.name}_{axis}")):
                return int(dim.dim_value)
    return None


def _check_one_value(sizes: list[OpenSize], config: ModelConfig, path: Path) -> None:
    """Refuse two names of one size with two values: one of them would be ignored."""
    texts = {size.text for size in sizes if size.is_named}
    words = {word for size in sizes for word in size.words}
    for size in sizes:
        others = texts - {size.text} if size.is_named else words
        keys = [key for key in size.keys if key in config.dims and key not in others]
        if len({(config.dims[key], key in config.exact) for key in keys}) > 1:
            raise ModelError(
                f"`dims` in model.yaml has two values for one size: {' and '.join(dict.fromkeys(keys))}",
                where=str(path),
                hint="keep one of them",
            )


def _without_limit(size: OpenSize, path: Path) -> ModelError:
    called = f"{size.text!r}" if size.is_named else f"{size.axis} (which has no name)"
    return ModelError(
        f"size {called} of input {size.input} has no limit",
        where=str(path),
        hint=f"add to model.yaml, dims: {{{size.advised}: N}} with the largest N that you will use, or "
        f"dims: {{{size.advised}: {{{EXACTLY}: N}}}} where all requests have the same",
    )


def _fix_value(model: onnx.ModelProto, name: str, value: object, path: Path) -> None:
    """Make an input an initializer."""
    graph = model.graph
    found = next((given for given in graph.input if given.name == name), None)
    if found is None:
        has = ", ".join(given.name for given in given_inputs(model))
        raise ModelError(
            f"there is no input {name!r}, which `inputs` in model.yaml names",
            where=str(path),
            hint=f"its inputs: {has}",
        )
    try:
        array = _tensor(found, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(
            f"the input {name} cannot be what `inputs` in model.yaml says: {error}",
            where=str(path),
            hint=f"the file has {_kind(found)} there",
        ) from None
    graph.input.remove(found)
    for stored in [tensor for tensor in graph.initializer if tensor.name == name]:
        graph.initializer.remove(stored)
    graph.initializer.append(numpy_helper.from_array(array, name))
    if not given_inputs(model):
        raise ModelError(
            "no input is left that a request could bring", where=str(path), hint="remove one from `inputs`"
        )


def _tensor(given: ValueInfoProto, value: object) -> npt.NDArray[Any]:
    """`value` in the type and the shape of an input; a number fills all of it.

    Raises:
        ValueError, TypeError, OverflowError: it does not fit; the text says why.
    """
    kind = given.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    array = np.array(value)
    if array.dtype == object and dtype.kind != "f":
        raise ValueError(f"{value} is no {dtype}")
    wide = array.astype(dtype)
    if dtype.kind in "iub" and not np.array_equal(wide, array):
        raise ValueError(f"{value} is no {dtype}")
    if not kind.HasField("shape"):
        return wide
    sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim]
    if array.ndim == 0:
        wide = np.broadcast_to(wide, [size or 1 for size in sizes]).copy()
    if wide.size > _MOST_ELEMENTS:
        raise ValueError(f"it would have {wide.size} elements, more than {_MOST_ELEMENTS}")
    fits = len(sizes) == wide.ndim and all(
        size in (None, own) for size, own in zip(sizes, wide.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"its sizes are {list(wide.shape)}")
    return wide


def _kind(given: ValueInfoProto) -> str:
    kind = given.type.tensor_type
    sizes = ", ".join(str(dim.dim_value or dim.dim_param or "?") for dim in kind.shape.dim)
    return f"{onnx.TensorProto.DataType.Name(kind.elem_type).lower()} [{sizes}]"
