"""A Relax module to one shared library: compiled, linked, looked through, and only then put in its place.

The library holds kernels and the loop over their plan.
The library is the same bit for bit whenever the same tools make it: it is stripped, and nothing in it tells where.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partc.errors import InternalError, UserError
from partc.format.kernel_plan import KernelPlan, kernels_digest
from partc.scratch import scratch_folder
from targets.tvm.elf import Elf, read_elf
from targets.tvm.linker import link_objects
from targets.tvm.loop import write_loop_object
from targets.tvm.machine import Machine
from targets.tvm.toolchain import Toolchain

_SCRATCH_BYTES = 64_000_000
"""Far more than the object files of a library of few MB, and the source of a GPU's kernels."""
_LIBC = frozenset(("memcpy", "memmove", "memset", "posix_memalign", "free", "syscall"))
_LIBM = frozenset(
    name + kind
    for kind in ("", "f")
    for name in (
        *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow", "sqrt", "cbrt", "hypot"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sincos"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
        *("fabs", "floor", "ceil", "round", "rint", "nearbyint", "trunc", "copysign", "ldexp", "nextafter"),
        *("fmod", "fma", "fmax", "fmin"),
    )
)
"""Functions of C99's libm, and two that LLVM calls where it knows the platform to have them: exp10, and sincos where a
kernel takes the sine and the cosine of one number."""


def build_kernels(
    module: Any,
    functions: Sequence[str],
    machine: Machine,
    tools: Toolchain,
    path: Path,
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[KernelPlan, int]:
    """Compile the kernels of `module` for a processor and link them to `path`, where nothing lies if that fails.

    Other threads compile while this one calls `meanwhile`.

    Returns:
        The plan of `functions`, and the scratch memory that one thread takes besides its arena, bytes.

    Raises:
        UserError: the linker failed; says what it printed. Or there is no room for scratch files.
        InternalError: a function does what no plan can say.
    """
    import tvm

    from targets.tvm.kernel_plan import plan_of
    from targets.tvm.objects import compiling
    from targets.tvm.pipeline import processor_pipeline

    with machine.target():
        lowered = processor_pipeline()(module)
    plan, kernels = plan_of(lowered, functions)
    assert tools.linker is not None
    with _scratch() as folder, compiling(kernels, machine) as objects:
        meanwhile()
        # By number: the name of a fused kernel may be longer than that of a file.
        files = [folder / f"{number}.o" for number in range(len(kernels))]
        for file, content in zip(files, objects, strict=True):
            file.write_bytes(content.result())
        loop, linked = folder / "loop.o", folder / path.name
        write_loop_object(machine, kernels_digest(plan.kernels), loop)
        link_objects(tools.linker, machine.platform, [str(file) for file in (*files, loop)], linked)
        library = linked.read_bytes()
    check_symbols(read_elf(library))
    path.write_bytes(library)
    return plan, workspace_bytes(tvm.IRModule(kernels))


def workspace_bytes(kernels: Any) -> int:
    """The memory for what a kernel of a `tvm.IRModule` keeps while it runs, the largest of all, in bytes a thread."""
    from tvm.s_tir.analysis import calculate_allocated_bytes

    return max((sum(rooms.values()) for rooms in calculate_allocated_bytes(kernels).values()), default=0)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the time of a build."""
    with scratch_folder("link") as folder:
        _check_room(folder)
        yield folder


def _check_room(folder: Path) -> None:
    """LLVM ends the process, without a word of where, when it cannot write."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < _SCRATCH_BYTES:
        raise UserError(
            f"files may have {limit / 1e6:.1f} MB, where scratch files of {_SCRATCH_BYTES / 1e6:.0f} MB may be needed",
            hint="raise the limit: ulimit -f unlimited",
        )
    free = shutil.disk_usage(folder).free
    if free < _SCRATCH_BYTES:
        raise UserError(
            f"no room for scratch files: {free / 1e6:.1f} MB, where {_SCRATCH_BYTES / 1e6:.0f} MB may be needed",
            where=str(folder),
            hint="make room there, or set TMPDIR to another folder",
        )


def check_symbols(library: Elf) -> None:
    """Fail where the library leaves open what the C library has not.

    Raises:
        InternalError: an operator was compiled to a call of something else.
    """
    if missing := sorted(library.undefined - _LIBM - _LIBC):
        raise InternalError(f"the library needs {', '.join(missing)}, which no device has")
