"""Which memory is put into large pages."""

from __future__ import annotations

import numpy as np

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
