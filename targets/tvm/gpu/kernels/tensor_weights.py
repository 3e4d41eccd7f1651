"""Weights for tensor cores: from panels to pairs of bfloat16 in the registers that an instruction takes.

| weights | numbers of bfloat16 | a word of the panel is |
| --- | --- | --- |
| 4 bits | one, exact | what a thread has of one column for two instructions |
| 8 bits | one, exact | for one instruction |
| bfloat16 | one | a half or a whole of one number |
| float16, float32 | two, three | the same |

A thread has two columns of a panel, 8 apart, and of each 8 neighbours of a block of the depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tvm.script import tirx as T

from partc.ir.panels import BLOCK, LANES
from partc.ir.weight_formats import by_format
from targets.tvm.gpu.kernels.shapes import Shape
from targets.tvm.gpu.kernels.threads import half_bits, local
from targets.tvm.kernels.script import Buffer, Expr, store
from targets.tvm.kernels.words import byte_of, half_of

_PARTS = {"float32": 3, "float16": 2, "bfloat16": 1}
"""Numbers of bfloat16 that a float is the sum of."""
_HIGH = 0xFFFF0000

SOURCE = """\
static __device__ __forceinline__ void partc_multiply(float* sums, const unsigned* w, const unsigned* x) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
}
static __device__ __forceinline__ void partc_multiply_first(float* sums, const unsigned* w, const unsigned* x) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "f"(0.0f));
}
static __device__ __forceinline__ unsigned partc_weights_of_4_bits(unsigned pair) {
  unsigned weights;  // 128 + n, less 136
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(weights) : "r"(pair | 0x43004300u), "r"(0x3f803f80u), "r"(0xc308c308u));
  return weights;
}
"""
"""What kernels call: CUDA has no name of its own for either."""


class Weights(Protocol):
    """The weights of a warp for one step, by panel."""

    parts: int
    """Numbers of bfloat16 that a weight is the sum of."""
    fragments: Buffer
    """[panels, parts, instructions, registers]."""

    def load(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        """Fetch block `block` of 32 numbers of the depth of a panel of w, as panel `at` of the warp."""

    def convert(self, at: int) -> None:
        """Write the fragments of what was fetched."""

    def scales(self) -> Buffer:
        """[panels, 2 columns]: a copy of the scales of what was fetched, where blocks have some."""


_Make = Callable[[int, Expr, Expr], Weights]


def weights_of(s: Shape, panels: int, row: Expr, quarter: Expr) -> Weights:
    """Those of so many panels; `row` and `quarter`: the column and the eighths of a block that a thread takes."""
    if s.bits is None:
        return _Floats(_PARTS[s.stored], panels, row, quarter)
    of4: _Make = _Of4
    of8: _Make = _Of8
    of8_blocks: _Make = _Of8Blocks
    make = by_format(s.bits, s.block, int4=of4, int8=of8, int8_blocks=of8_blocks)
    return make(panels, row, quarter)


class _Of4:
    """Weights of 4 bits; each block has a scale."""

    parts = 1

    def __init__(self, panels: int, row: Expr, quarter: Expr) -> None:
        self._panels, self._row, self._quarter = panels, row, quarter
        self._words, self._next_scales = local((panels, 2), "int32"), local((panels, 2))
        self.fragments = local((panels, 1, 2, 4), "uint32")

    def load(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        """See `Weights`."""
        groups, steps, _, _ = s.weight[0]
        step, half = T.bind(T.min(block // 2, steps - 1)), block % 2  # behind the end x is zero
        place = (T.min(panel // 4, groups - 1), step, panel % 4)
        first = half * 64 + self._quarter * LANES + self._row
        for side in range(2):
            store(self._words, [at, side], w[(*place, first + 8 * side)])
            column = self._row + 8 * side
            pair = w[(*place, 128 + half * 8 + column // 2)]
            store(self._next_scales, [at, side], half_bits(half_of(pair, column)))

    def convert(self, at: int) -> None:
        """See `Weights`."""
        for m in range(2):
            for register in range(4):
                word = T.Cast("uint32", self._words[at, register % 2])
                pair = T.shift_right(word, T.uint32(register // 2 * 8 + m * 4))
                four = T.bitwise_and(pair, T.uint32(0x000F000F))
                found = T.call_extern("uint32", "partc_weights_of_4_bits", four)
                store(self.fragments, [at, 0, m, register], found)

    def scales(self) -> Buffer:
        """See `Weights`."""
        return _copied(self._next_scales, self._panels)


class _Of8:
    """Weights of 8 bits; a column has its scale in the end."""

    parts = 1

    def __init__(self, panels: int, row: Expr, quarter: Expr) -> None:
        self._row, self._quarter = row, quarter
        self._words = local((panels, 2, 2), "int32")
        self.fragments = local((panels, 1, 2, 4), "uint32")

    def load(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        """See `Weights`."""
        panels, words, _ = s.weight[0]
        own = T.bind(T.min(panel, panels - 1))
        for m in range(2):
            word = T.min(2 + block * 8 + self._quarter * 2 + m, words - 1)
            for side in range(2):
                store(self._words, [at, m, side], w[own, word, self._row + side * 8])

    def convert(self, at: int) -> None:
        """See `Weights`."""
        for m in range(2):
            for register in range(4):
                word, first = self._words[at, m, register % 2], register // 2
                pair = [T.reinterpret("uint32", _signed_byte(word, place)) for place in (first, first + 2)]
                store(self.fragments, [at, 0, m, register], _pair_of(*pair))

    def scales(self) -> Buffer:
        """See `Weights`; nobody asks."""
        return local((1, 2))


class _Of8Blocks(_Of8):
    """Weights of 8 bits; each block of 32 has a scale."""

    def __init__(self, panels: int, row: Expr, quarter: Expr) -> None:
        super().__init__(panels, row, quarter)
        self._panels, self._next_scales = panels, local((panels, 2))

    def load(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        """See `Weights`."""
        panels, blocks, _ = s.weight[0]
        place = T.bind(T.min(panel, panels - 1)), T.bind(T.min(block, blocks - 1))  # behind the end x is zero
        for side in range(2):
            column = self._row + 8 * side
            for m in range(2):
                store(self._words, [at, m, side], w[(*place, (self._quarter * 2 + m) * LANES + column)])
            pair = w[(*place, BLOCK // 4 * LANES + column // 2)]
            store(self._next_scales, [at, side], half_bits(half_of(pair, column)))

    def scales(self) -> Buffer:
        """See `Weights`."""
        return _copied(self._next_scales, self._panels)


def _copied(scales: Buffer, panels: int) -> Buffer:
    """[panels, 2 columns] in registers of their own."""
    found = local((panels, 2))
    for panel in range(panels):
        for side in range(2):
            store(found, [panel, side], scales[panel, side])
    return found


class _Floats:
    """Floats, which are taken apart."""

    def __init__(self, parts: int, panels: int, row: Expr, quarter: Expr) -> None:
        self.parts, self._row, self._quarter = parts, row, quarter
        self._numbers = local((panels, 2, 8))
        self.fragments = local((panels, parts, 2, 4), "uint32")

    def load(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        """See `Weights`."""
        own, first = T.bind(T.min(panel, s.panels - 1)), T.bind(block * BLOCK + self._quarter * 8)
        for side in range(2):
            for j in range(8):
                place = T.min(first + j, s.K - 1)
                number = T.Cast("float32", w[own, place, self._row + 8 * side])
                store(self._numbers, [at, side, j], number)

    def convert(self, at: int) -> None:
        """See `Weights`."""
        for part in range(self.parts):
            for m in range(2):
                for register in range(4):
                    numbers = Row(self._numbers, (at, register % 2))
                    word = take_pair(numbers, m * 4 + register // 2, part < self.parts - 1)
                    store(self.fragments, [at, part, m, register], word)

    def scales(self) -> Buffer:
        """See `Weights`; nobody asks."""
        return local((1, 2))


class Row:
    """The last axis of a buffer."""

    def __init__(self, buffer: Buffer, places: tuple[Expr, ...]) -> None:
        self.buffer, self.places = buffer, places


def take_pair(numbers: Row, j: int, rest: bool) -> Expr:
    """The high parts of the numbers j and j + 2 as a pair of bfloat16; with `rest`, what is left stays in their place.

    Cut off and not rounded: what is left is exact then, too.
    """
    buffer, places = numbers.buffer, numbers.places
    words = []
    for place in (j, j + 2):
        number = buffer[(*places, place)]
        words.append(T.bind(T.bitwise_and(T.reinterpret("uint32", number), T.uint32(_HIGH))))
        if rest:
            store(buffer, [*places, place], number - T.reinterpret("float32", words[-1]))
    return _pair_of(*words)


def _pair_of(low: Expr, high: Expr) -> Expr:
    """Two words whose upper halves are bfloat16, in one."""
    return T.bitwise_or(T.shift_right(low, T.uint32(16)), T.bitwise_and(high, T.uint32(_HIGH)))


def _bits(number: Expr) -> Expr:
    return T.reinterpret("uint32", number)


def _signed_byte(word: Expr, place: int) -> Expr:
    """Byte `place` of a word as a float32; it fits in bfloat16."""
    return T.Cast("float32", byte_of(word, place))
