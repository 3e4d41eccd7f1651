"""Kernels of a GPU: nvcc makes machine code of one architecture of them, so that the device needs no compiler.

TVM does this itself only where an NVIDIA driver is installed. Elsewhere it stores the source, for the device to compile
with Python and nvcc. So the source is taken out of what TVM packs into a library, and machine code put in its place.

What is packed is a row of `u64 length, bytes` (least byte first) behind the import tree, two lists of numbers: for each
module its kind and its content, `_lib` without one. The content of kind `cuda` is the format, `cuda` or `cubin`, then
the table of functions, then the code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partc.errors import InternalError, UserError
from targets.tvm.elf import CUDA, MAGIC, read_elf
from targets.tvm.process import run_tool
from targets.tvm.toolchain import Nvcc

_HOOK = "tvm_callback_cuda_compile"
"""The function that TVM calls with the source of all kernels where there is a driver."""
_SECONDS = 3600
"""Seconds that nvcc may take for all kernels of a library; minutes are usual."""
_LENGTH = struct.Struct("<Q")
_SOURCE, _BINARY = b"cuda", b"cubin"
Compile = Callable[[bytes], bytes]
"""CUDA source → CUDA binary."""


def kernel_compiler(nvcc: Nvcc, arch: str, folder: Path) -> Compile:
    """The compiler for `arch`, with scratch files in `folder`; raises UserError with the output of nvcc.

    TVM's own call allows approximate division, exponentials and square roots (`--use_fast_math`), which would cost
    tokens their identity.
    """

    def compile_source(source: bytes) -> bytes:
        text, binary = folder / "kernels.cu", folder / "kernels.cubin"
        text.write_bytes(source)
        command = [*nvcc.command, "--cubin", "-O3", f"-arch={arch}", "-o", str(binary), str(text)]
        if problem := run_tool(command, _SECONDS).problem:
            hint = "take the nvcc of the device's CUDA version: the option `nvcc`, or the variable NVCC"
            raise UserError(f"nvcc failed: {problem[:2000]}", where=nvcc.version, hint=hint)
        return binary.read_bytes()

    return compile_source


@contextmanager
def compiling_with(compile_source: Compile) -> Iterator[None]:
    """Have TVM call `compile_source` instead of its own compiler, within the block."""
    import tvm_ffi

    before = tvm_ffi.get_global_func(_HOOK, allow_missing=True)
    tvm_ffi.register_global_func(_HOOK, lambda source: compile_source(source.encode()), override=True)
    try:
        yield
    finally:
        if before is not None:
            tvm_ffi.register_global_func(_HOOK, before, override=True)


def packer(compile_source: Compile, host: Any) -> Callable[[Any, bool, str, str], str]:
    """A `fpack_imports` of `export_library`: an object file for the LLVM target `host` with GPU code compiled."""
    import tvm_ffi

    def pack(module: Any, is_system_library: bool, prefix: str, folder: str) -> str:
        packed = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()
        blob = compile_packed(packed, compile_source)
        target = json.dumps({key: _plain(value) for key, value in host.export().items() if value})
        made = tvm_ffi.get_global_func("codegen.codegen_blob")(blob, is_system_library, target, prefix)
        path = str(Path(folder) / "imports.o")
        made.write_to_file(path)
        return path

    return pack


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int) else [str(item) for item in value]


def compile_packed(packed: bytes, compile_source: Compile) -> bytes:
    """The packed modules of TVM, with machine code for source wherever kind `cuda` comes with source.

    Raises:
        InternalError: it is laid out in another way.
    """
    start = _LENGTH.size
    for _ in range(2):  # the import tree: two lists of numbers
        start += _LENGTH.size * (1 + _LENGTH.unpack_from(packed, start)[0])
    made = bytearray(packed[_LENGTH.size : start])
    while start < len(packed):
        kind, start = _take(packed, start)
        made += _lengthed(kind)
        if kind != b"_lib":
            content, start = _take(packed, start)
            made += _lengthed(_compiled(content, compile_source) if kind == b"cuda" else content)
    return _LENGTH.pack(len(made)) + bytes(made)


def _compiled(content: bytes, compile_source: Compile) -> bytes:
    form, after = _take(content, 0)
    if form == _BINARY:
        return content
    # The table of functions has no length of its own; the code, which is text, comes last and tells where it begins.
    code = next(
        (place for place in range(after, len(content) - 8) if _ends_with_code(content, place)), len(content)
    )
    if form != _SOURCE or code == len(content):
        raise InternalError(
            "this TVM packs GPU code in another way", hint="install the TVM of constraints.txt"
        )
    return (
        _lengthed(_BINARY) + content[after:code] + _lengthed(compile_source(content[code + _LENGTH.size :]))
    )


def _ends_with_code(content: bytes, place: int) -> bool:
    """Whether a length stands here that reaches the end."""
    return _LENGTH.unpack_from(content, place) == (len(content) - place - _LENGTH.size,)


def _take(data: bytes, start: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, start)
    end = start + _LENGTH.size + length
    return data[start + _LENGTH.size : end], end


def _lengthed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def architectures(library: bytes) -> set[str]:
    """GPUs that there is machine code for in a library: `sm_87`. CUDA 13 (ABI 8) moved the number in `e_flags`."""
    found, start = set(), 0
    while (start := library.find(MAGIC, start + 1)) > 0:
        elf = read_elf(library[start:])
        if elf.machine == CUDA:
            found.add(f"sm_{(elf.flags >> 8 if library[start + 8] >= 8 else elf.flags) & 0xFF}")
    return found
