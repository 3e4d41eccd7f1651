"""Kernels to object files, on all cores; a kernel that an earlier device or command had, too, is not compiled again.

TVM gives up the interpreter's lock while it lowers a kernel and while LLVM compiles it, so that threads are enough.
A kernel has an object file of its own: it is the same whatever else a library holds, and whichever thread makes it.
It is kept in `$XDG_CACHE_HOME/partc/kernels` under a hash of all that decides it: the kernel, the target, the code that
lowers it, and the versions of TVM and LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, lru_cache
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import StructuralKey, structural_hash

from partc.format.digests import data_digest
from partc.kept import Kept, user_cache
from partc.pipeline.versions import code_version
from partc.runtime.processor import usable_cores
from partc.scratch import scratch_folder
from targets.tvm.machine import Machine

_MOST = 1024
"""Object files in memory for later devices: those of some six libraries, a few kB each, with their kernels."""
LIMIT_BYTES = 64_000_000
"""Bytes of all object files that are kept; those not used for the longest time go first. A library has some 2 MB."""


@contextmanager
def compiling(kernels: Mapping[str, Any], machine: Machine) -> Iterator[list[Future[bytes]]]:
    """The object files of these PrimFuncs, whose symbols are the names, in their order; threads make them meanwhile.

    Whoever leaves early, with an error, waits for no more than one kernel a thread.
    """
    pool, target = ThreadPoolExecutor(usable_cores(), "partc-compile"), machine.target()
    try:
        yield [
            pool.submit(copy_context().run, _object, name, _key([kernel, target]))
            for name, kernel in kernels.items()
        ]
    finally:
        pool.shutdown(cancel_futures=True)
        Kept(user_cache() / "kernels").drop_oldest(LIMIT_BYTES)


def _key(values: list[Any]) -> StructuralKey:
    return StructuralKey(values)  # type: ignore[call-arg]  # its hints are those of its fields


@lru_cache(_MOST)
def _object(name: str, key: StructuralKey) -> bytes:
    """The object file of a kernel for a target, which are both in the key."""
    kernel, target = key.key
    kept, entry = Kept(user_cache() / "kernels"), f"{_digest(name, kernel, target)}.o"
    content = kept.read(entry)
    if content is None:
        content = _compiled(name, kernel, target)
        kept.write(entry, content)
    return content


def _digest(name: str, kernel: Any, target: Any) -> str:
    """Hash of all that an object file depends on.

    The text of a kernel has every digit of its numbers; TVM's own hash, which tells of all fields, stands beside it.
    """
    fields = [structural_hash(kernel), structural_hash(target)]
    return data_digest([name, kernel.script(show_meta=True), str(target), fields, _versions()])


@cache
def _versions() -> list[object]:
    llvm = tvm.get_global_func("target.llvm_version_major")()
    return [code_version(__name__)["sources"], tvm.__version__, llvm]


def _compiled(name: str, kernel: Any, target: Any) -> bytes:
    code = tvm.get_global_func("target.build.llvm")(_lowered(tvm.IRModule({name: kernel}), target), target)
    with scratch_folder("kernel") as folder:
        path = folder / "kernel.o"
        code.write_to_file(str(path))
        return path.read_bytes()


def _lowered(module: Any, target: Any) -> Any:
    """The `tvm.IRModule` as LLVM gets it: what `tvm.tirx.build` does, but for two things.

    Kernels check none of their arguments: that would be more than half of a library, and readers of a plan do it. And
    no kernel is the entry of a module, which would have the code of its only one twice.
    """
    lower, finish, _ = tirx.get_default_tir_pipeline(target)
    bound = tirx.transform.BindTarget(target.with_host(target))(module)
    lowered = tirx.transform.SkipAssert()(finish()(lower(bound)))
    return tvm.IRModule({n: f.without_attr("tirx.is_entry_func") for n, f in lowered.functions.items()})
