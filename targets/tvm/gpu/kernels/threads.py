"""The vocabulary of kernels of GPUs: blocks, threads, memory that a block shares, and sums over threads.

Nothing here needs more than OpenCL 1.2 has: sums go through memory that a block shares, and not from register to
register, since GPUs differ in how many threads run in step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder

from targets.tvm.kernels.script import Buffer, Expr, prim_func

_SCHEDULED = "tirx.is_scheduled"
"""The attribute that keeps TVM's rules from a kernel."""


def gpu_func(
    parameters: Mapping[str, tuple[Sequence[int], str]],
    grid: Sequence[int],
    block: Sequence[int],
    write: Callable[..., None],
) -> Any:
    """The PrimFunc of a kernel with these tensors; `write` gets the numbers of block and thread, then the tensors."""

    def body(*tensors: Buffer) -> None:
        with ExitStack() as threads:
            numbers = [
                threads.enter_context(T.launch_thread(f"{what}Idx.{axis}", size))
                for what, sizes in (("block", grid), ("thread", block))
                for axis, size in zip("xyz", sizes, strict=False)
            ]
            write(numbers[: len(grid)], numbers[len(grid) :], *tensors)

    return prim_func(parameters, body).with_attr(_SCHEDULED, True)


def shared(shape: Sequence[int], dtype: str = "float32") -> Buffer:
    """Memory that the threads of a block share."""
    return builder.alloc_buffer(tuple(shape), dtype, scope="shared")


def local(shape: Sequence[int], dtype: str = "float32") -> Buffer:
    """Registers of a thread."""
    return builder.alloc_buffer(tuple(shape), dtype, scope="local")


def wait() -> None:
    """Go on when every thread of the block is here."""
    T.evaluate(T.tvm_storage_sync("shared"))


def fold(number: Expr, count: int, join: Callable[[Expr, Expr], None]) -> None:
    """Join what `count` threads have in shared memory into what the first one has; `count` is a power of two.

    `join` adds the part of the second thread to that of the first; `number` is that of this thread.
    """
    wait()
    while count > 1:
        count //= 2
        with T.If(number < count), T.Then():
            join(number, number + count)
        wait()


def half_bits(bits: Expr) -> Expr:
    """The number in float32 whose float16 has these 16 bits; infinite and undefined ones become large.

    OpenCL knows float16 only where the device has an extension, and subnormal numbers of float32 only where it likes:
    those of float16, of which small blocks have their scales, are made of normal ones.
    """
    wide = T.Cast("uint32", bits)
    moved = T.bind(T.shift_left(wide & T.uint32(0x7FFF), T.uint32(13)))
    sign = T.shift_left(wide & T.uint32(0x8000), T.uint32(16))
    normal = T.reinterpret("float32", moved + T.uint32((127 - 15) << 23))
    above = T.reinterpret("float32", moved + T.uint32((127 - 14) << 23))  # 2^-14 more than it
    found = T.Select(moved < T.uint32(1 << 23), above - T.float32(2.0**-14), normal)
    return T.reinterpret("float32", T.reinterpret("uint32", found) | sign)


def in_pairs(
    terms: Sequence[Expr], join: Callable[[Expr, Expr], Expr] = lambda one, other: one + other
) -> Expr:
    """Terms joined in pairs: a sum rounds less so than one after the other."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return join(in_pairs(terms[:half], join), in_pairs(terms[half:], join))
