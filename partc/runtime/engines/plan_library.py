"""A compiled library and its kernel plan in this process: opened, its kernels found, its loop and threads started.

Needs nothing but libc: the library holds kernels, the loop over a plan, and what kernels take to share their work
among threads (`targets/tvm/loop/loop.c`).
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import threading
import weakref
from pathlib import Path, PurePosixPath

import numpy as np

from partc.errors import BundleError
from partc.format.dtypes import DTYPES, Array
from partc.format.files import read_verified, verify_file
from partc.format.kernel_plan import KERNELS_FILE, KernelConstant, KernelPlan, kernels_digest
from partc.format.kernel_plan_rules import load_kernel_plan
from partc.format.names import BUILD_FILE
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.memory import aligned_zeros
from partc.runtime.engines.processor import check_processor
from partc.runtime.processor import MOST_THREADS, usable_cores

_SYMBOL = "__tvm_ffi_"
"""The beginning of the name of every kernel's symbol."""
_LONGEST_NAME_BYTES = 200
"""The longest name of a file in memory; Linux takes a little more."""


class Library:
    """The functions of one library, and the memory that they share: one step runs at a time.

    Two of these for one file have code and threads of their own, whatever has become of the file between. A process
    that is forked has none of the threads, and computes in the one that it has.
    """

    def __init__(self, role: Role, folder: Path, name: str) -> None:
        """Open the file `name`, and start the threads that the build asks for.

        Raises:
            BundleError: library or plan is not what the build describes, or for another kind of machine; or this
                one does not allow as many threads.
        """
        assert role.engine.library is not None
        content = verified_code(role, folder, name)
        self.path = path = folder / name
        check_processor(role.engine.library, path)
        self.plan: KernelPlan = plan_within(role, folder / plan_file(name))
        self._code = open_code(path, content)
        self._unload = weakref.finalize(self, _ctypes.dlclose, self._code._handle)
        self._unload.atexit = False  # a thread may be computing, and the process ends anyway
        self._run = self._code.partc_run
        self.kernels = self._addresses(self.plan)
        """Kernel → address of its code."""
        self.constants = [_aligned(constant) for constant in self.plan.constants]
        self.arena = aligned_zeros((self.plan.arena_bytes,), np.dtype(np.uint8))
        """Memory for everything that functions make; the next call of any overwrites it."""
        helpers = _Helpers(self._code)
        self._end_helpers = weakref.finalize(self, helpers.end)  # the last finalizer is called first
        helpers.start((role.engine.threads or usual_threads()) - 1, path)

    def close(self) -> None:
        """End the threads and unload the code; that happens anyway when nobody has this any more."""
        self._end_helpers()
        self._unload()

    def run(self, calls: int, count: int) -> int:
        """Run calls of kernels that lie at the address `calls`; 0, or the number from 1 of the one without memory."""
        failed: int = self._run(calls, count)
        return failed

    def _addresses(self, plan: KernelPlan) -> dict[str, int]:
        """Kernel → address of its code; kernels check nothing, so all must be as the plan describes them."""
        digest = (ctypes.c_char * 32).in_dll(self._code, "partc_kernels")
        if bytes(digest) != kernels_digest(plan.kernels):
            message = f"its kernels are not those that {KERNELS_FILE} describes"
            raise BundleError(message, where=str(self.path), hint=RECOMPILE)
        return {kernel: self._address(kernel) for kernel in plan.kernels}

    def _address(self, kernel: str) -> int:
        found = ctypes.cast(self._code[_SYMBOL + kernel], ctypes.c_void_p).value
        assert found is not None
        return found


class _Helpers:
    """Threads that wait in the library for a part of a kernel; some 20 us after the last one they sleep."""

    def __init__(self, code: ctypes.CDLL) -> None:
        self._code = code
        self._stop = ctypes.c_int32()
        self._threads: list[threading.Thread] = []

    def start(self, count: int, path: Path) -> None:
        if count >= MOST_THREADS:  # they would start until the system has no more
            raise _too_many(f"{count + 1} threads are more than any device has cores for", path)
        work, stop = self._code.partc_work, ctypes.byref(self._stop)
        while len(self._threads) < count:
            thread = threading.Thread(target=work, args=(stop,), name="partc-kernels", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # a limit of the system, or no memory for its stack
                self.end()
                raise _too_many(f"{count + 1} threads cannot be started on this machine", path) from None
            self._threads.append(thread)

    def end(self) -> None:
        self._stop.value = 1
        self._code.partc_wake()
        for thread in self._threads:
            thread.join()


def _too_many(message: str, path: Path) -> BundleError:
    hint = "compile with fewer `threads` for this device, or with 0, and set OMP_NUM_THREADS"
    return BundleError(message, where=str(path), hint=hint)


def _aligned(constant: KernelConstant) -> Array:
    array = aligned_zeros(constant.shape, DTYPES[constant.dtype])
    array[...] = constant.array
    return array


def verified_code(role: Role, folder: Path, name: str) -> bytes:
    """The content of the code `name`, which is held against its digest, as is the plan beside it.

    Code runs as soon as it is loaded, so both are checked here, whoever checked the folder before.

    Raises:
        BundleError: one of them is not what the build describes.
    """
    plan_name = plan_file(name)
    for file in (name, plan_name):
        if file not in role.files:
            raise BundleError(f"{file!r} is not among the files", where=str(folder), hint=RECOMPILE)
    content = read_verified(folder, name, role.files[name])
    verify_file(folder, plan_name, role.files[plan_name])
    return content


def plan_within(role: Role, path: Path) -> KernelPlan:
    """The plan in a file; raises BundleError where it takes more memory than the build says, or is no plan."""
    plan, peak = load_kernel_plan(path), role.build.memory.peak_bytes
    if peak is not None and plan.arena_bytes > peak:
        message = f"its arena takes {plan.arena_bytes} bytes, and {BUILD_FILE} reckons with {peak} in all"
        raise BundleError(message, where=str(path), hint=RECOMPILE)
    return plan


def plan_file(library: str) -> str:
    """The name of the kernel plan beside a library."""
    return str(PurePosixPath(library).with_name(KERNELS_FILE))


def usual_threads() -> int:
    """The first number of OMP_NUM_THREADS, which may be a list, up to `MOST_THREADS`; else one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdecimal() and int(asked):
        return min(int(asked), MOST_THREADS)
    return usable_cores()


def open_code(path: Path, content: bytes) -> ctypes.CDLL:
    """The code of a library with this content; raises BundleError where the system does not load it."""
    try:
        code = _load_copy(path, content) if sys.platform == "linux" else ctypes.CDLL(str(path.resolve()))
        code.partc_run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        code.partc_run.restype = ctypes.c_int64
        code.partc_work.argtypes = [ctypes.c_void_p]
        code.partc_work.restype = code.partc_wake.restype = None
    except (OSError, AttributeError) as error:
        raise BundleError(f"it cannot be loaded: {error}", where=str(path), hint=RECOMPILE) from error
    return code


def _load_copy(path: Path, content: bytes) -> ctypes.CDLL:
    """The system opens a file once in a process, and goes by names: for a newer file it would give the older code.

    So it is given a file in memory, which nobody can change, and which has a name of its own as long as it is open.
    """
    file = os.memfd_create(os.fsdecode(os.fsencode(path)[-_LONGEST_NAME_BYTES:]))
    try:
        with open(file, "wb", closefd=False) as copy:
            copy.write(content)
        code = ctypes.CDLL(f"/proc/self/fd/{file}")
    except BaseException:
        os.close(file)
        raise
    weakref.finalize(code, os.close, file).atexit = False
    return code
