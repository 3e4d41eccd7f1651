"""Kernels of a processor under TVM's virtual machine, an independent way to run what a kernel plan runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.format.build import Submodule
from partc.format.dtypes import Array
from partc.format.kernel_plan import KernelPlan
from partc.format.role import Role
from partc.runtime.engines.entries import Entry, function_name
from partc.runtime.engines.plan import PlanEngine
from targets.tvm.linker import link_objects
from targets.tvm.machine import Machine
from targets.tvm.toolchain import Toolchain

_CPU = (1, 0, 2)
"""DLPack's number of the processor, the first, with pooled memory."""


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

    linker = tools.linker
    assert linker is not None

    def link(output: str, objects: Sequence[str], options: object = None) -> None:
        link_objects(linker, machine.platform, objects, Path(output))

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


@contextmanager
def compiling_for_machine() -> Iterator[None]:
    """Let the target make libraries for the virtual machine, within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("targets.tvm.link.build_kernels", build_for_machine)
        yield


def open_machine(library: Path) -> Any:
    """The functions of a library that `build_for_machine` made, by name, with this processor's memory."""
    import tvm  # noqa: F401  (which loads its runtime)
    import tvm_ffi

    machine = tvm_ffi.load_module(str(library))["vm_load_executable"]()
    machine["vm_initialization"](*_CPU)
    return machine


class MachineFrame:
    """Stands in for a `Frame`: a function of the virtual machine over the memory of the frame."""

    def __init__(self, function: Any, frame: Any) -> None:
        import tvm_ffi

        self.outputs: list[Array] = []
        self._function = function
        self._arguments = [tvm_ffi.from_dlpack(parameter) for parameter in frame._parameters]

    def run(self) -> None:
        """Compute the outputs."""
        self.outputs = [np.from_dlpack(output) for output in self._function(*self._arguments)]


class MachineEngine(PlanEngine):
    """The engine of a plan, whose functions the virtual machine computes: `library` has them."""

    def __init__(self, role: Role, folder: Path, library: Path) -> None:
        super().__init__(role, folder)
        self._machine = open_machine(library)
        for submodule in role.running:
            self.load(submodule)

    def _prepare(self, module: Submodule, slot: int, entry: Entry) -> Any:
        call = super()._prepare(module, slot, entry)
        frame: Any = MachineFrame(self._machine[function_name(module.name, entry)], call.frame)
        self._calls[module.name, slot, entry] = call = replace(call, frame=frame)
        return call
