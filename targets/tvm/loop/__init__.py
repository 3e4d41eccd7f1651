"""The code of a library besides its kernels, for one machine: `loop.c`, compiled by TVM's own LLVM from `loop.ll`."""

from __future__ import annotations

import json
from pathlib import Path

from targets.tvm.machine import Machine

_IR = Path(__file__).parent / "loop.ll"
_MODULE = """\
target triple = "{triple}"
{ir}
@partc_futex = hidden constant i64 {futex}
@partc_kernels = constant [{size} x i8] c"{digest}"
!llvm.module.flags = !{{!0, !1}}
!0 = !{{i32 4, !"tvm_target", !"{target}"}}
!1 = !{{i32 8, !"PIC Level", i32 2}}
"""


def write_loop_object(machine: Machine, digest: bytes, path: Path) -> None:
    """Compile the loop for a machine to an object file; the text that it is made of lies beside it.

    `digest`: that of the kernels which the library is to have (`kernels_digest`).
    """
    import tvm_ffi

    text = path.with_suffix(".ll")
    text.write_text(loop_ir(machine, digest))
    module = tvm_ffi.get_global_func("ffi.Module.load_from_file.ll")(str(text), "ll")
    module.write_to_file(str(path), "o")


def loop_ir(machine: Machine, digest: bytes) -> str:
    """loop.ll with what differs: the target, the number of the system call `futex`, the digest of the kernels."""
    platform = machine.platform
    target = json.dumps({"kind": "llvm", "mtriple": platform.triple, "mcpu": platform.baseline})
    ir = _IR.read_text().replace("@partc_futex = external hidden constant i64, align 8\n", "")
    return _MODULE.format(
        triple=platform.triple,
        ir=ir,
        futex=platform.futex,
        size=len(digest),
        digest="".join(f"\\{byte:02x}" for byte in digest),
        target=target.replace('"', r"\22"),
    )
