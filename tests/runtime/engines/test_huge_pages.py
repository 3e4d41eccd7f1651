"""Which memory is born in large pages, in processes of their own, for the allocator remembers what it was told."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
_ADVICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_START = """
import ctypes, sys
from contextlib import nullcontext
from pathlib import Path
from partc.runtime.engines.huge_pages import in_huge_pages, share_heap
MIB = 1 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def heap():
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split("-") for line in (line.split()[0] for line in lines if "[heap]" in line)]
    return [range(int(start, 16), int(stop, 16)) for start, stop in spans]
def held(what):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(what)) // 1024
context = in_huge_pages(64 * MIB) if sys.argv[1] == "large" else nullcontext()
"""


def told(code: str, *how: str) -> list[int]:
    """What a process prints that runs `code`, in large pages or not."""
    command = [sys.executable, "-c", _START + code, *how]
    return [int(word) for word in subprocess.run(command, capture_output=True, check=True).stdout.split()]


def test_what_is_allocated_lies_side_by_side_however_large() -> None:
    code = """
with context:
    places = [libc.malloc(size * MIB) for size in (1, 3, 40, 2)]
print(*(+any(place in span for span in heap()) for place in places))
"""
    assert told(code, "plain") == [0, 0, 0, 0]
    assert told(code, "large") == [1, 1, 1, 1]


def test_later_large_blocks_have_mappings_of_their_own_again() -> None:
    code = """
with context:
    pass
places = [libc.malloc(size * MIB) for size in (3, 80)]
print(*(+any(place in span for span in heap()) for place in places))
"""
    assert told(code, "large") == [1, 0]


@pytest.mark.skipif(not _ADVICE.exists() or "[never]" in _ADVICE.read_text(), reason="no large pages here")
def test_large_pages_from_the_start_and_only_where_something_was_written() -> None:
    code = """
before = held("Rss:")
with context:
    for _ in range(16):
        ctypes.memset(libc.malloc(3 * MIB), 1, 3 * MIB)
print(held("AnonHugePages:"), held("Rss:") - before)
"""
    large, resident = told(code, "large")
    assert large >= 40
    assert resident < 60
    assert told(code, "plain")[0] < 40 or "[always]" in _ADVICE.read_text()


def test_a_thread_shares_the_heap_that_is_large_pages() -> None:
    """Each way in a process of its own: glibc remembers which threads have which heap."""
    code = """
import threading
if sys.argv[2] == "shared":
    share_heap()
places = []
def allocate():
    with context:
        places.extend(libc.malloc(size * MIB) for size in (1, 3, 40))
thread = threading.Thread(target=allocate)
thread.start()
thread.join()
print(*(+any(place in span for span in heap()) for place in places))
"""
    assert told(code, "large", "shared") == [1, 1, 1]
    assert told(code, "large", "apart") == [0, 0, 0]


def test_a_failure_meanwhile_leaves_the_allocator_as_it_was() -> None:
    code = """
try:
    with context:
        raise KeyError
except KeyError:
    place = libc.malloc(80 * MIB)
print(+any(place in span for span in heap()))
"""
    assert told(code, "large") == [0]
