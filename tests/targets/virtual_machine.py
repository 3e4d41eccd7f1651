"""Libraries for TVM's virtual machine that a processor runs: what the plan of a library is held against, and what
stands in for a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from partc.format.kernel_plan import KernelPlan
from partc.format.role import Role
from partc.runtime.engines import tvm_runtime
from partc.runtime.engines.tvm_memory import Memory
from targets.tvm.linker import link_objects
from targets.tvm.machine import Machine
from targets.tvm.toolchain import Toolchain

CPU = (1, 0, 2)
"""DLPack's number of the processor, the first, with pooled memory."""


class ApartMemory(Memory):
    """As for a GPU, but the processor's own: every tensor is copied there and back."""

    def __init__(self, ffi: Any) -> None:
        super().__init__(ffi)
        self._device = ffi.device("cpu", 0)


def build_for_machine(
    module: Any,
    functions: Sequence[str],
    machine: Machine,
    tools: Toolchain,
    path: Path,
    meanwhile: Callable[[], object],
) -> tuple[KernelPlan, int]:
    """Stands in for `build_kernels`: the library has the virtual machine's code of the same kernels, and no plan."""
    from tvm import relax

    def link(output: str, objects: Sequence[str], options: object = None) -> None:
        link_objects(tools.linker, machine.platform, objects, Path(output))

    with tempfile.TemporaryDirectory() as folder:
        executable = relax.build(module, target=machine.target(), relax_pipeline=machine_pipeline())
        executable.export_library(str(path), fcompile=link, workspace_dir=folder)
    meanwhile()
    return KernelPlan(kernels={}, constants=(), functions={}), 0


def machine_pipeline() -> Any:
    """The passes of `processor_pipeline`, and those that only the virtual machine takes."""
    import tvm
    from tvm import relax

    from targets.tvm.pipeline import processor_pipeline

    step = relax.transform
    return tvm.transform.Sequential(
        [
            processor_pipeline(),
            step.StaticPlanBlockMemory(),
            step.LowerAllocTensor(),
            step.KillAfterLastUse(),
            step.LowerRuntimeBuiltin(),
            step.ComputePrimValue(),
            step.VMShapeLower(emit_err_ctx=False),
            step.AttachGlobalSymbol(),
        ]
    )


def stand_in_for_gpu(patch: pytest.MonkeyPatch) -> None:
    """Let the target compile for the virtual machine, and its engine compute on this processor."""
    patch.setattr("targets.tvm.link.build_kernels", build_for_machine)
    patch.setattr(tvm_runtime, "Memory", ApartMemory)
    patch.setattr(tvm_runtime, "_LIBRARIES", ("libtvm_runtime.so",))
    patch.setattr(tvm_runtime, "_DEVICES", CPU)


def open_machine(library: Path) -> Any:
    """The functions of a library that `build_for_machine` made, by name, with this processor's memory."""
    import tvm_ffi

    with pytest.MonkeyPatch.context() as patch:
        stand_in_for_gpu(patch)
        tvm_runtime.start_runtime()
    machine = tvm_ffi.load_module(str(library))["vm_load_executable"]()
    machine["vm_initialization"](*CPU)
    return machine


def as_on_gpu(role: Role) -> Role:
    """The role of a device whose library was compiled under `stand_in_for_gpu`."""
    return role.changed(engine=replace(role.engine, kind="tvm", provider="cuda"))
