"""`vpdpbusd`, which adds four products of unsigned and signed bytes to each sum, in vectors of any width."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.script import tirx as T

from targets.tvm.kernels.instructions.contract import Expr, moved_up


@dataclass(frozen=True)
class Vnni:
    """The arithmetic of processors that have it, for so many sums in a vector."""

    lanes: int

    def add4(self, total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
        """`Sums.add` of weights of 4 bits."""
        return self._dot(total, weight, T.Broadcast(x[row, at + i], self.lanes))

    def add8(self, total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
        """`Sums.add` of weights of 8 bits in blocks."""
        return self._dot(total, moved_up(weight, self.lanes), T.Broadcast(x[row, at + i], self.lanes))

    def dot8(self, total: Expr, weight: Expr, x: Expr, row: Expr, at: Expr, i: int) -> Expr:
        """`InstructionSet.dot8`."""
        return self._dot(total, T.Broadcast(x[row, at + i], self.lanes), weight)

    def _dot(self, total: Expr, unsigned: Expr, signed: Expr) -> Expr:
        """LLVM 22 wants bytes where older ones wanted words."""
        many = 4 * self.lanes
        return T.call_llvm_pure_intrin(
            f"int32x{self.lanes}", f"llvm.x86.avx512.vpdpbusd.{8 * many}", total,
            T.reinterpret(f"uint8x{many}", unsigned), T.reinterpret(f"int8x{many}", signed),
        )  # fmt: skip
