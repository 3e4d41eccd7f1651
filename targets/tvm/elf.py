"""The header of an ELF file of 64 bits: its machine, the libraries it needs, and its undefined symbols.

A linker that makes a shared library does not mind undefined symbols, and there is no device here to load it; so the
file itself is read. Layout: System V ABI, chapters 4 and 5; `e_flags` of a CUDA binary holds the architecture.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

X86_64, AARCH64, CUDA = 62, 183, 190
"""Values of `machine`."""
MAGIC = b"\x7fELF"

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_DYNAMIC_SECTION, _DYNAMIC_SYMBOLS, _NEEDED = 6, 11, 1


@dataclass(frozen=True)
class Elf:
    """The parts of an ELF file that matter to whoever loads it."""

    machine: int
    flags: int
    sections: tuple[str, ...]
    needed: tuple[str, ...]
    """Shared libraries that are loaded along."""
    undefined: frozenset[str]
    """Symbols that another library has to have."""


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    data: bytes
    link: int


def read_elf(data: bytes) -> Elf:
    """Read a file of 64 bits, least byte first. O(bytes of its symbols).

    Raises:
        ValueError: it is something else.
    """
    if data[:6] != MAGIC + b"\x02\x01":
        raise ValueError("not an ELF file of 64 bits, least byte first")
    header = _HEADER.unpack_from(data)
    machine, flags, (size, count, names) = header[4], header[9], header[13:16]
    sections = [_section(data, header[8] + place * size) for place in range(count)]
    return Elf(
        machine=machine,
        flags=flags,
        sections=tuple(_text(sections[names].data, section.name) for section in sections),
        needed=tuple(name for s in sections if s.kind == _DYNAMIC_SECTION for name in _needed(s, sections)),
        undefined=frozenset(
            name for s in sections if s.kind == _DYNAMIC_SYMBOLS for name in _undefined(s, sections)
        ),
    )


def _section(data: bytes, offset: int) -> _Section:
    name, kind, _, _, start, size, link, *_ = _SECTION.unpack_from(data, offset)
    return _Section(name, kind, data[start : start + size], link)


def _text(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()


def _needed(section: _Section, sections: list[_Section]) -> list[str]:
    table = sections[section.link].data
    return [_text(table, value) for tag, value in _DYNAMIC.iter_unpack(section.data) if tag == _NEEDED]


def _undefined(section: _Section, sections: list[_Section]) -> list[str]:
    table = sections[section.link].data
    return [
        _text(table, name)
        for name, _, _, where, _, _ in _SYMBOL.iter_unpack(section.data)
        if not where and name
    ]
