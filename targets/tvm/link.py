"""A Relax module to one shared library: compiled, linked, looked through, and only then put in its place.

The library is the same bit for bit whenever the same tools make it: it is stripped, and nothing in it tells where.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partc.errors import InternalError, UserError
from targets.tvm.cuda import architectures, compiling_with, kernel_compiler, packer
from targets.tvm.elf import Elf, read_elf
from targets.tvm.linker import link_objects
from targets.tvm.machine import Machine
from targets.tvm.toolchain import Toolchain

_SCRATCH_BYTES = 64_000_000
"""Far more than the object files of a library of few MB, and the source of a GPU's kernels."""
_LIBC = frozenset(("memcpy", "memmove", "memset"))
_LIBM = frozenset(
    name + kind
    for kind in ("", "f")
    for name in (
        *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow", "sqrt", "cbrt", "hypot"),
        *(
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "atan2",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
        ),
        *(
            "erf",
            "erfc",
            "fabs",
            "floor",
            "ceil",
            "round",
            "rint",
            "nearbyint",
            "trunc",
            "fmod",
            "fma",
            "fmax",
        ),
        *("fmin", "copysign", "ldexp", "nextafter"),
    )
)
"""Functions that every libm since C99 has."""


def build_library(module: Any, machine: Machine, tools: Toolchain, path: Path) -> None:
    """Compile `module` for `machine` and link it to `path`, where nothing lies if that fails.

    Raises:
        UserError: nvcc or the linker failed; says what it printed. Or there is no room for scratch files.
    """
    with tempfile.TemporaryDirectory() as folder:
        _check_room(folder)
        linked = Path(folder) / path.name

        def link(output: str, objects: Sequence[str], options: object = None) -> None:
            link_objects(tools.linker, machine.platform, objects, Path(output))

        _export(module, machine, tools, Path(folder), str(linked), link)
        library = linked.read_bytes()
    check_symbols(read_elf(library))
    _check_gpu(library, machine)
    path.write_bytes(library)


def _check_room(folder: str) -> None:
    """LLVM ends the process, without a word of where, when it cannot write."""
    free = shutil.disk_usage(folder).free
    if free < _SCRATCH_BYTES:
        raise UserError(
            f"no room for scratch files: {free / 1e6:.1f} MB, where {_SCRATCH_BYTES / 1e6:.0f} MB may be needed",
            where=folder,
            hint="make room there, or set TMPDIR to another folder",
        )


def verified(machine: Machine) -> str:
    """The checks of `build_library`, for build.json; nothing runs."""
    gpu = f"; machine code for {machine.cuda}" if machine.cuda else ""
    return f"links; undefined symbols are of libc, libm and TVM's runtime{gpu}; not run when compiled"


def _export(module: Any, machine: Machine, tools: Toolchain, folder: Path, linked: str, link: Any) -> None:
    from tvm import relax

    from targets.tvm.pipeline import processor_pipeline

    target, options = machine.target(), {"fcompile": link, "workspace_dir": str(folder)}
    if tools.nvcc is None or machine.cuda is None:
        executable = relax.build(module, target=target, relax_pipeline=processor_pipeline())
        executable.export_library(linked, **options)
        return
    compile_source = kernel_compiler(tools.nvcc, machine.cuda, folder)
    with compiling_with(compile_source):
        executable = relax.build(module, target=target)
        executable.export_library(linked, **options, fpack_imports=packer(compile_source, target.host))


def _check_gpu(library: bytes, machine: Machine) -> None:
    wanted = {machine.cuda.rstrip("af")} if machine.cuda else set()
    if architectures(library) != wanted:
        raise InternalError(f"the library has code for the GPUs {architectures(library)}, not for {wanted}")


def check_symbols(library: Elf) -> None:
    """Fail where the library leaves open what neither the C library nor TVM's runtime has.

    Raises:
        InternalError: an operator was compiled to a call of something else.
    """
    foreign = {name for name in library.undefined if not name.startswith("TVM")} - _LIBM - _LIBC
    if foreign:
        raise InternalError(f"the library needs {', '.join(sorted(foreign))}, which no device has")
