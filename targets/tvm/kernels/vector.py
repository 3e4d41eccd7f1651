"""What kernels share: vectorisable functions and the choice between one thread and all.

`exp` of the C library takes one number at a time, some 10 ns each; the one below is arithmetic, 16 numbers in about the
same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm.script import tirx as T

SERIAL_WORK = 50_000
"""Operations up to which a kernel stays on its thread: waking others takes longer (some 5 µs)."""


def loop_of(work: float) -> Any:
    """The kind of a kernel's outermost loop."""
    return T.parallel if work > SERIAL_WORK else T.serial


def exp(x: Any) -> Any:
    """eˣ to 2 ulp, for x clamped to what float32 can hold: 2ⁿ · eʳ, r = x - n ln 2, with Cephes' polynomial for eʳ."""
    x = T.max(T.min(x, T.float32(88.3)), T.float32(-87.3))
    n = T.floor(x * T.float32(1.44269504088896341) + T.float32(0.5))
    r = x - n * T.float32(0.693359375) - n * T.float32(-2.12194440e-4)
    series = T.float32(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = series * r + T.float32(factor)
    power = T.reinterpret("float32", (T.Cast("int32", n) + T.int32(127)) << T.int32(23))
    return (series * r * r + r + T.float32(1)) * power


def sigmoid(x: Any) -> Any:
    """1 / (1 + e⁻ˣ)."""
    return T.float32(1) / (T.float32(1) + exp(T.float32(0) - x))


def tanh(x: Any) -> Any:
    """1 - 2 / (e²ˣ + 1); near 0 an odd polynomial (Cephes), since the difference would lose its digits."""
    z = x * x
    series = T.float32(-5.70498872745e-3)
    for factor in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        series = series * z + T.float32(factor)
    far = T.float32(1) - T.float32(2) / (exp(x + x) + T.float32(1))
    return T.Select(T.abs(x) < T.float32(0.625), series * z * x + x, far)


def swish(x: Any) -> Any:
    """Swish, also called SiLU: x · sigmoid(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Any) -> Any:
    """Gelu by tanh: x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    inner = T.float32(0.7978845608028654) * (x + T.float32(0.044715) * x * x * x)
    return T.float32(0.5) * x * (T.float32(1) + tanh(inner))


ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {"gelu_tanh": gelu_tanh, "swish": swish}
"""What a gated product may apply to its gate."""
