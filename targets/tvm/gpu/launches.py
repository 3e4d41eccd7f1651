"""Scheduled kernels as functions of the device, and the launches that call them.

TVM splits a kernel into code of the device and code of the host that starts it. All sizes are numbers, so that of the
host nothing is needed but the sizes of its launches, and which parameters each function takes: its order is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import Var
from tvm.tirx import DeclBuffer, IntImm
from tvm.tirx.build import split_host_device_mods
from tvm_ffi import structural_map, structural_walk

from partc.errors import InternalError
from partc.format.kernel_plan import KernelLaunch

_START = "tirx.call_ffi_kernel"
_SHARED = "tirx.use_dyn_shared_memory"
_TAGS = [f"{what}Idx.{axis}" for what in ("block", "thread") for axis in "xyz"]


def split(kernels: Mapping[str, Any], target: Any) -> tuple[dict[str, tuple[KernelLaunch, ...]], Any]:
    """The launches of each kernel, and the `tvm.IRModule` of the functions that they start; O(code).

    Raises:
        InternalError: a kernel does more than launch functions; names it.
    """
    kernels = {name: _plain(kernel) for name, kernel in kernels.items()}
    module = tirx.transform.BindTarget(target)(tvm.IRModule(kernels))
    lower, _, finish = tirx.get_default_tir_pipeline(target)
    host, devices = split_host_device_mods(lower(module))
    starts = {str(variable.name_hint): function for variable, function in host.functions.items()}
    launches = {name: tuple(_launches(name, kernel, starts[name])) for name, kernel in kernels.items()}
    if lone := [name for name, own in launches.items() if not own]:
        raise InternalError(f"the kernel {lone[0]} starts nothing on the GPU")
    functions = {
        name: function for device in devices.values() for name, function in finish()(device).functions.items()
    }
    return launches, tvm.IRModule(functions)


def _plain(kernel: Any) -> Any:
    """The kernel with parameters that have names of their own, and begin where their memory begins.

    A product of a value with itself has two of one name; kernels that TVM writes for GPUs take places of beginnings.
    """
    inside = {
        parameter: tirx.decl_buffer(parameter.shape, parameter.dtype, str(parameter.name), elem_offset=0)
        for parameter in kernel.params
        if not isinstance(parameter.ty.elem_offset, IntImm)
    }
    kernel = kernel.specialize(inside) if inside else kernel
    names: set[str] = set()
    new: dict[Any, Any] = {}
    for parameter in kernel.params:
        name = fresh = str(parameter.name)
        while fresh in names:
            fresh = f"{name}_{len(names)}"
        names.add(fresh)
        if fresh != name:
            new[parameter] = Var(fresh, parameter.ty)
    return structural_map(kernel, (Var, lambda variable: new.get(variable, variable))) if new else kernel


def _launches(name: str, kernel: Any, start: Any) -> Iterator[KernelLaunch]:
    """The launches of a kernel, in their order."""
    places = {str(parameter.name): place for place, parameter in enumerate(kernel.params)}
    whole: dict[str, str] = {}
    calls: list[Any] = []

    def declared(view: Any) -> None:
        source = view.data.args[0] if isinstance(view.data, Call) and len(view.data.args) else None
        if hasattr(source, "name"):
            whole[str(view.buffer.name)] = str(source.name)  # type: ignore[union-attr]

    structural_walk(
        start.body,
        [(DeclBuffer, declared), (Call, lambda call: calls.append(call) if _is_start(call) else None)],
    )
    for call in calls:
        tags = [str(tag) for tag in call.attrs.launch_params]
        function, *arguments = call.args[: -len(tags)]
        sizes = dict(zip(tags, map(int, call.args[-len(tags) :]), strict=True))
        x, y, z, *block = (sizes.pop(tag, 1) for tag in _TAGS)
        shared = sizes.pop(_SHARED, 0)
        if sizes:
            raise InternalError(f"the kernel {name} is launched with {', '.join(sizes)}")
        yield KernelLaunch(
            function=str(function.value),
            grid=(x, y, z),
            block=(block[0], block[1], block[2]),
            shared_bytes=shared,
            arguments=tuple(places[_whole(str(argument.args[0].name), whole)] for argument in arguments),
        )


def _is_start(call: Any) -> bool:
    return getattr(call.op, "name", "") == _START


def _whole(name: str, whole: Mapping[str, str]) -> str:
    """The parameter that a name is a view of."""
    while name in whole and whole[name] != name:
        name = whole[name]
    return name
