"""The types of values that programs alone name: parts that are cut, tiles that sub-modules make, sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partc.format.build import TensorType
from partc.format.dims import Dim, cut_dim, with_sizes
from partc.format.program import Add, Cut, Instruction, Join, Run


def program_types(
    items: Iterable[Instruction], calls: Mapping[str, Run], known: Mapping[str, TensorType]
) -> dict[str, TensorType]:
    """The types of all values that follow from those of some; O(instructions · depth).

    Args:
        items: the instructions of all devices and phases: a name has the same type everywhere.
        calls: sub-module → its call with its own values.
        known: the types of these, and of other values that graphs have.
    """
    types, before, every = dict(known), -1, list(dict.fromkeys(items))
    while len(types) > before:
        before = len(types)
        for item in every:
            for name, found in _follows(item, calls, types):
                types.setdefault(name, found)
    return types


def _follows(
    item: Instruction, calls: Mapping[str, Run], types: Mapping[str, TensorType]
) -> list[tuple[str, TensorType]]:
    """What an instruction says of the values that it makes, and of those that it joins or adds."""
    match item:
        case Run(submodule=name, inputs=inputs, outputs=outputs) if {*inputs} <= {*types}:
            own = calls[name]
            sizes = _sizes(own, inputs, types)
            pairs = zip(own.outputs, outputs, strict=True)
            return [(made, _with_sizes(types[origin], sizes)) for origin, made in pairs]
        case Cut(whole=whole, parts=parts, axis=axis) | Join(whole=whole, parts=parts, axis=axis) if (
            whole in types
        ):
            return [(part, _part(types[whole], place, len(parts), axis)) for place, part in enumerate(parts)]
        case Add(terms=terms, total=total):
            equal = (*terms, total)
            found = [types[name] for name in equal if name in types][:1]
            return [(name, kind) for kind in found for name in equal]
        case _:
            return []


def _sizes(own: Run, inputs: Iterable[str], types: Mapping[str, TensorType]) -> dict[str, Dim]:
    """The expressions that stand for the symbols of a sub-module in a call."""
    return {
        dim: size
        for origin, given in zip(own.inputs, inputs, strict=True)
        for dim, size in zip(types[origin].shape, types[given].shape, strict=True)
        if isinstance(dim, str) and dim.isidentifier() and dim != size
    }


def _with_sizes(kind: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    return TensorType(kind.dtype, tuple(with_sizes(dim, sizes) for dim in kind.shape))


def _part(whole: TensorType, place: int, count: int, axis: int) -> TensorType:
    sizes = list(whole.shape)
    sizes[axis] = cut_dim(sizes[axis], place, count)
    return TensorType(whole.dtype, tuple(sizes))
