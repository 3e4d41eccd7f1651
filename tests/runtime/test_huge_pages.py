"""Which memory is put into large pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest

from partc.runtime.huge_pages import _private_memory, use_huge_pages

_MAPS = """7f0000100000-7f0001100000 rw-p 00000000 00:00 0
7f0002000000-7f0003000000 r--p 00000000 00:00 0
7f0004000000-7f0005000000 rw-p 00000000 08:01 12 /weights.safetensors
7f0006000000-7f0006300000 rw-p 00000000 00:00 0
55d000000000-55d001000000 rw-p 00000000 00:00 0                          [heap]
7ffc00000000-7ffc01000000 rw-p 00000000 00:00 0                          [stack]
"""


def test_large_private_memory_alone_in_whole_pages() -> None:
    found = list(_private_memory(_MAPS))
    assert found == [(0x7F0000200000, 0x7F0001000000), (0x55D000000000, 0x55D001000000)]


def test_contents_stay() -> None:
    array = np.arange(4_000_000)
    use_huge_pages()
    assert int(array.sum()) == 4_000_000 * 3_999_999 // 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_is_allocated_lies_side_by_side() -> None:
    """In a process of its own, for the allocator remembers what it was told."""
    code = """
import ctypes, sys
from partc.runtime.huge_pages import gather_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
if sys.argv[1] == "gather":
    gather_memory()
places = [libc.malloc(3 << 19) for _ in range(8)]
heap = next(line for line in open("/proc/self/maps") if "[heap]" in line)
start, stop = (int(number, 16) for number in heap.split()[0].split("-"))
print(sum(start <= place < stop for place in places))
"""
    found = [
        int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, check=True).stdout)
        for how in ("plain", "gather")
    ]
    assert found == [0, 8]
