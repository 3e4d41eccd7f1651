"""Kernels written by Python code that runs, rather than by TVMScript that is parsed.

What is unrolled is a loop of Python, what differs is a function; loops of the kernel are `with T.serial(n) as i`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder

Expr = Any
"""A TensorIR expression."""
Buffer = Any
"""A tensor of a kernel: `buffer[places]` reads, `store` writes."""


def prim_func(parameters: Mapping[str, tuple[Sequence[int], str]], write: Callable[..., None]) -> Any:
    """The PrimFunc with these tensors (name → shape and type); `write`, called with them, writes its body."""
    with IRBuilder() as script, builder.prim_func(private=True, s_tir=True):
        builder.func_name("kernel")
        builder.func_attr({"tirx.noalias": True})  # else sums go to memory, for fear that they are a weight
        write(
            *(
                builder.arg(name, builder.buffer(tuple(shape), dtype))
                for name, (shape, dtype) in parameters.items()
            )
        )
    return script.get()


def registers(shape: Sequence[int], dtype: str) -> Buffer:
    """Numbers that LLVM keeps in registers as far as it has them; TVM takes the scope `local` from its heap."""
    return builder.alloc_buffer(tuple(shape), dtype)


def store(buffer: Buffer, places: Sequence[Expr], value: Expr) -> None:
    """`buffer[places] = value`; a ramp on the last axis writes a vector."""
    builder.buffer_store(buffer, value, list(places))
