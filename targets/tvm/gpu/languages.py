"""The languages of GPUs: what the compiler writes, and what the device is given.

| provider | file | the device needs |
| --- | --- | --- |
| `cuda` | `kernels.cubin`, machine code of one architecture | NVIDIA's driver |
| `opencl` | `kernels.cl`, OpenCL C 1.2, compiled when it is loaded | its maker's OpenCL |

The digest of the plan's kernels stands in the code, as in a processor's library: who runs it can tell that both belong
together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm

from partc.errors import InternalError, UserError
from partc.format.gpu_code import CUBIN_FILE, OPENCL_FILE, digest_line
from partc.scratch import scratch_folder
from targets.tvm.elf import CUDA, read_elf
from targets.tvm.gpu.kernels import tensor_weights
from targets.tvm.machine import Machine
from targets.tvm.process import run_tool
from targets.tvm.toolchain import Nvcc, Toolchain

_PROTOTYPE = re.compile(r'(__kernel|extern "C" __global__) .*\);\s*$')
_SECONDS = 3600
"""Seconds that nvcc may take for all kernels of a device; minutes are usual."""

_NAMES = "".join(f"#define {name}f {name}\n" for name in ("tan", "asin", "acos", "atan"))
"""Functions that TVM calls by C's names, which OpenCL has under one name for all types."""


@dataclass(frozen=True)
class Language:
    """A language, and the way from the functions of a `tvm.IRModule` to the content of a file."""

    kind: str
    """TVM's name of the target, and of the code generator."""
    file: str
    finish: Callable[[str, bytes, Machine, Toolchain], bytes]
    """Source, digest, machine, tools → content of the file."""

    def code(self, functions: Any, digest: bytes, machine: Machine, tools: Toolchain) -> bytes:
        """The content of the file; raises UserError where a compiler fails."""
        generate = tvm.get_global_func(f"target.build.{self.kind}")
        source = generate(functions, machine.target()).inspect_source()
        return self.finish(_without_prototypes(source), digest, machine, tools)


def _without_prototypes(source: str) -> str:
    """The source without declarations: TVM writes those of all functions before each, which nobody needs."""
    return "".join(line for line in source.splitlines(keepends=True) if not _PROTOTYPE.match(line))


def _source(source: str, digest: bytes, machine: Machine, tools: Toolchain) -> bytes:
    return f"{digest_line(digest)}\n{_NAMES}{source}".encode()


def _machine_code(source: str, digest: bytes, machine: Machine, tools: Toolchain) -> bytes:
    """The output of nvcc for the source, for the architecture of the machine.

    Approximate division, exponentials and square roots (`--use_fast_math`) would cost tokens their identity.
    """
    assert tools.nvcc is not None and machine.cuda is not None
    listed = ", ".join(map(str, digest))
    constant = f'extern "C" __constant__ unsigned char partc_kernels[{len(digest)}] = {{{listed}}};\n'
    with scratch_folder("cuda") as folder:
        binary = folder / CUBIN_FILE
        (folder / "kernels.cu").write_text(tensor_weights.SOURCE + source + constant)
        command = [*tools.nvcc.command, "--cubin", "-O3", f"-arch={machine.cuda}", "-o", str(binary)]
        if problem := run_tool([*command, str(folder / "kernels.cu")], _SECONDS).problem:
            raise _failed(problem, tools.nvcc)
        code = binary.read_bytes()
    if (found := architecture(code)) != machine.cuda.rstrip("af"):
        raise InternalError(f"nvcc made code for {found}, not for {machine.cuda}")
    return code


def _failed(problem: str, nvcc: Nvcc) -> UserError:
    hint = "take the nvcc of the device's CUDA version: the option `nvcc`, or the variable NVCC"
    return UserError(f"nvcc failed: {problem[:2000]}", where=nvcc.version, hint=hint)


def architecture(code: bytes) -> str:
    """The GPU that machine code is for: `sm_87`. CUDA 13 (ABI 8) moved the number in `e_flags`."""
    elf = read_elf(code)
    if elf.machine != CUDA:
        raise InternalError("nvcc made code for another kind of machine")
    return f"sm_{(elf.flags >> 8 if code[8] >= 8 else elf.flags) & 0xFF}"


LANGUAGES: Mapping[str, Language] = {
    "cuda": Language("cuda", CUBIN_FILE, _machine_code),
    "opencl": Language("opencl", OPENCL_FILE, _source),
}
"""By provider."""
