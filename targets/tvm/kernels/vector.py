"""Helpers of all kernels: vectorisable functions and the choice between one thread and all.

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


def place_within(number: Any, last: int) -> Any:
    """A number of 64 bits as a place from 0 to `last`: whatever it is, no kernel leaves its tensors for it."""
    return T.Cast("int32", T.max(T.min(number, T.int64(last)), T.int64(0)))


def wide(value: Any) -> Any:
    """A number in float32: of float16 one instruction, of bfloat16 a shift."""
    return value.astype("float32")


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


def erf(x: Any) -> Any:
    """The error function within 4e-7: x P(x²) / Q(x²), the rational of Eigen, ±1 from 3.84 on."""
    near = T.max(T.min(x, T.float32(3.84)), T.float32(-3.84))
    z = near * near
    above = T.float32(-2.72614225801306e-10)
    for factor in (
        *(2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
        *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    ):
        above = above * z + T.float32(factor)
    below = T.float32(-1.45660718464996e-05)
    for factor in (
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ):
        below = below * z + T.float32(factor)
    far = T.Select(x < T.float32(0), T.float32(-1), T.float32(1))
    return T.Select(T.abs(x) < T.float32(3.84), near * above / below, far)


def gelu(x: Any) -> Any:
    """Gelu: x / 2 · (1 + erf(x / √2))."""
    return T.float32(0.5) * x * (T.float32(1) + erf(x * T.float32(0.7071067811865476)))


def swish(x: Any) -> Any:
    """Swish, also called SiLU: x · sigmoid(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Any) -> Any:
    """Gelu by tanh: x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    inner = T.float32(0.7978845608028654) * (x + T.float32(0.044715) * x * x * x)
    return T.float32(0.5) * x * (T.float32(1) + tanh(inner))


ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {"gelu": gelu, "gelu_tanh": gelu_tanh, "swish": swish}
"""Activations that there is code for, alone and in a gated product."""
