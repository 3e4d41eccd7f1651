"""Instruction sets that quantised products have arithmetic for, each in a file of its own, and the choice of one."""

from __future__ import annotations

from dataclasses import replace

from targets.tvm.kernels.instructions.avx2 import AVX2
from targets.tvm.kernels.instructions.avx512_vnni import AVX512_VNNI
from targets.tvm.kernels.instructions.avx_vnni import AVX_VNNI
from targets.tvm.kernels.instructions.contract import InstructionSet, Tile
from targets.tvm.kernels.instructions.neon import NEON
from targets.tvm.kernels.instructions.neon_dotprod import NEON_DOTPROD
from targets.tvm.machine import PREFETCH, Machine

INSTRUCTION_SETS = (AVX512_VNNI, AVX_VNNI, AVX2, NEON_DOTPROD, NEON)
"""All of them; of one architecture the fastest first."""


def instructions_of(machine: Machine) -> InstructionSet:
    """The fastest set that every processor of this kind has; the baseline of every platform has one."""
    enabled = machine.enabled()
    found = next(s for s in INSTRUCTION_SETS if s.arch == machine.platform.arch and s.needs <= enabled)
    return replace(found, asks_ahead=PREFETCH in machine.features)


__all__ = ["INSTRUCTION_SETS", "InstructionSet", "Tile", "instructions_of"]
