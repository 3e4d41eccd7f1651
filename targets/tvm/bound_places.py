"""Places that are data, kept inside their tensors, in the kernels that TVM makes of Relax's operators.

A kernel reads or writes where a tensor of whole numbers says. The compiler writes a clamp before it, but that may be
another kernel, which a damaged plan leaves out. So every such place is clamped where it is used. The kernels of
`targets.tvm.kernels` do so themselves (`place_within`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import BufferLoad, BufferStore, PrimFunc
from tvm_ffi import VisitInterrupt, structural_map, structural_walk


def bound_places() -> Any:
    """A pass of TVM over the kernels that it wrote itself; those of ours say that nothing may be fused into them."""
    return tvm.transform.module_pass(_bound_all, opt_level=0, name="BoundPlaces")


def _bound_all(module: Any, context: Any) -> Any:
    for name, function in module.functions.items():
        if isinstance(function, PrimFunc) and "op_pattern" not in (function.attrs or {}):
            module = _changed(module, name, function)
    return module


def _changed(module: Any, name: Any, function: Any) -> Any:
    body = structural_map(function.body, [(TensorLoad, _load), (BufferStore, _store)])
    if body.same_as(function.body):
        return module
    module.update_func(name, function.with_body(body))
    return module


def _load(load: Any) -> Any:
    places = _bounded(load.source, load.indices)
    return load if places is None else BufferLoad(load.source, places)


def _store(store: Any) -> Any:
    places = _bounded(store.buffer, store.indices)
    return store if places is None else BufferStore(store.buffer, store.value, places)


def _bounded(buffer: Any, places: Sequence[Any]) -> list[Any] | None:
    """The places with a clamp where one is missing; None where none is."""
    sizes = [int(size) for size in buffer.shape]
    if not any(map(_may_leave, places, sizes)):
        return None
    return [
        _clamped(place, size) if _may_leave(place, size) else place
        for place, size in zip(places, sizes, strict=True)
    ]


def _clamped(place: Any, size: int) -> Any:
    zero, last = (tirx.const(number, place.ty) for number in (0, size - 1))
    return tirx.max(tirx.min(place, last), zero)


def _may_leave(place: Any, size: int) -> bool:
    """Whether a place depends on what a tensor holds, and not only within the size of its axis."""
    is_data = structural_walk(place, (TensorLoad, lambda load: VisitInterrupt(load))) is not None
    if not is_data:
        return False
    bound = Analyzer().const_int_bound(place)
    return not 0 <= bound.min_value <= bound.max_value < size
