"""Large pages for the weights that an engine packs when it loads them, where Linux and glibc have them.

They are read from end to end for every token. In pages of 4 KiB the processor's prefetching ends with each page: a
model of 110M parameters in 4 bits decodes 1.15-1.2 times as fast in pages of 2 MiB. Memory that is large pages from
the start costs less than the small ones that it would be made of, a fault for every 2 MiB; putting what lies there
into large pages afterwards (MADV_COLLAPSE) costs more than all of loading.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
_LARGEST = 32 << 20
"""From how many bytes on a block gets a mapping of its own; glibc takes no more."""
_MOST_MAPPINGS = 65536
"""The default of glibc."""


@contextmanager
def in_huge_pages(size: int) -> Iterator[None]:
    """Have the next `size` bytes that are allocated lie side by side in large pages; elsewhere, nothing happens.

    Side by side, because glibc makes a mapping of its own of whatever has more than 128 KiB. They come to lie between
    others, and a mapping of less than two large pages need not hold one. Large pages that nobody has written to take no
    memory.
    """
    system = _glibc()
    if system is None:
        yield
        return
    system.mallopt(_M_MMAP_MAX, 0)
    system.mallopt(_M_TRIM_THRESHOLD, -1)  # what is free at the end of the heap stays there
    try:
        _advise(system, size)
        yield
    finally:
        system.mallopt(_M_MMAP_MAX, _MOST_MAPPINGS)
        system.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        # As glibc would set it itself; else every step gave memory back.
        system.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST)


def share_heap() -> None:
    """Have threads that begin from now on allocate in the heap of the first one, for all that is said here is about it.

    As it comes, glibc gives every thread a heap of its own, in pieces of 64 MiB that never are large pages.
    """
    system = _glibc()
    if system is not None:
        system.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return the freed blocks of the heap to the system: weights lie there once `in_huge_pages` has been used."""
    system = _glibc()
    if system is not None:
        system.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    system = ctypes.CDLL(None) if sys.platform == "linux" else None
    return system if system is not None and hasattr(system, "mallopt") else None


def _advise(system: ctypes.CDLL, size: int) -> None:
    """Make the heap larger by `size` bytes that are to be large pages."""
    system.malloc.restype = ctypes.c_void_p
    system.malloc.argtypes = [ctypes.c_size_t]
    system.free.argtypes = [ctypes.c_void_p]
    system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = system.malloc(size)
    if block:
        skip = -block % mmap.PAGESIZE
        system.madvise(block + skip, max(0, size - skip), mmap.MADV_HUGEPAGE)
        system.free(block)
