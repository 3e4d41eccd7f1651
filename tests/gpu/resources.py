"""What kernels take of a multiprocessor, as NVIDIA's assembler says (`-Xptxas -v`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(\w+)'.*?(?=Compiling entry function|\Z)", re.DOTALL)
_REGISTERS, _SHARED = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes smem")
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Resources:
    """Of one kernel."""

    name: str
    registers: int
    """Of a thread."""
    shared_bytes: int
    """Of a block."""
    spilled_bytes: int
    """Written and read because registers did not do."""


def read_resources(log: str) -> list[Resources]:
    """What the assembler printed, in its order."""
    return [_of(entry.group(1), entry.group(0)) for entry in _ENTRY.finditer(log)]


def _of(name: str, text: str) -> Resources:
    def first(pattern: re.Pattern[str]) -> int:
        found = pattern.search(text)
        return sum(map(int, found.groups())) if found else 0

    return Resources(name, first(_REGISTERS), first(_SHARED), first(_SPILLED))


def row_of(architecture: str, found: Sequence[Resources]) -> str:
    """A row of a table: kernels, most registers, most shared memory, and which spill."""
    spilling = [f"{one.name} {one.spilled_bytes}" for one in found if one.spilled_bytes]
    return (
        f"| {architecture} | {len(found)} | {max(one.registers for one in found)} "
        f"| {max(one.shared_bytes for one in found)} | {', '.join(spilling) or 'none'} |"
    )
