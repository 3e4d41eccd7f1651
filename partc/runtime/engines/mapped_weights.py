"""Weights as they lie in their files: mapped, so that steps begin at once, and put into large pages meanwhile.

Every token reads weights from end to end, and the processor's prefetching ends with each page. A mapped file mostly has
small ones, and copying it first would be a third of the time until the first token. So a piece after the other is
copied into large pages, which then take the addresses of that piece: nobody who reads there notices.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np

from partc.errors import BundleError
from partc.format.dtypes import BY_SHORT, Array
from partc.format.layouts import ALIGNMENT
from partc.format.reading import RECOMPILE, unreadable
from partc.format.safetensors import Entry
from partc.runtime.engines.memory import aligned_zeros

_LARGE_PAGE = 2 << 20
_MOST_BYTES = 16 << 20
"""Of a piece: Linux counts those that are mapped."""
_ADVICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAY_MOVE, _FIXED = 1, 2
"""Of mremap(2)."""
_NO_RESERVE = 0x4000
"""Of mmap(2), where Python has no name for it."""
_FAILED = ctypes.c_void_p(-1).value


class WeightMappings:
    """The files of an engine's weights. One thread uses it; the tensors are anybody's."""

    def __init__(self) -> None:
        """None yet."""
        self._unsettled: deque[weakref.ref[_MappedWeights]] = deque()

    def map(self, path: Path, entries: Sequence[Entry]) -> list[Array]:
        """Tensors of a file, whose mapping stays as long as somebody has one of them; what lies askew is copied.

        Raises:
            BundleError: the file cannot be read.
        """
        if not entries:
            return []
        try:
            weights = _MappedWeights(path, entries)
        except OSError as error:
            raise unreadable(path, error) from None
        self._unsettled.append(weakref.ref(weights))
        return [weights.tensor(entry) for entry in entries]

    def settle(self) -> bool:
        """Put a piece of one of them into large pages, which takes milliseconds; whether there may be another.

        Raises:
            BundleError: the file cannot be read any more.
        """
        while self._unsettled:
            weights = self._unsettled[0]()
            if weights is not None and weights.settle():
                return True
            self._unsettled.popleft()
        return False


class _MappedWeights(mmap.mmap):
    """A file of weights at an address that stays its own, as long as an array lies there."""

    def __new__(cls, path: Path, entries: Sequence[Entry]) -> Self:
        """Map the file; raises OSError where it cannot be read."""
        with path.open("rb") as file:
            # A private mapping: arrays count as writeable, and the file stays as it is.
            return super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_COPY)

    def __init__(self, path: Path, entries: Sequence[Entry]) -> None:
        """`entries`: the tensors that will be read."""
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file).atexit = False
        self._address = int(np.frombuffer(self, np.uint8).ctypes.data)
        self._pieces = deque(self._pieces_of(entries) if _can_place() else ())
        """Offsets and bytes of those that lie in pages of the file."""

    def tensor(self, entry: Entry) -> Array:
        """A tensor where it lies, or a copy at an aligned address."""
        kind = BY_SHORT[entry.dtype].held
        array = np.frombuffer(self, kind, math.prod(entry.shape), entry.offset).reshape(entry.shape)
        if entry.offset % ALIGNMENT == 0:
            return array
        copy = aligned_zeros(entry.shape, kind)
        copy[...] = array
        return copy

    def settle(self) -> bool:
        """Put the next piece into large pages; False where there is none, or no memory for it.

        Whoever reads there meanwhile reads the file or its copy: Linux changes the one for the other in one call.
        """
        if not self._pieces:
            return False
        offset, size = self._pieces.popleft()
        copy = _large_pages(size)
        if copy is not None:
            self._fill(copy, offset, size)
            if _system().mremap(copy, size, size, _MAY_MOVE | _FIXED, self._address + offset) != _FAILED:
                return True
            _system().munmap(copy, size)
        self._pieces.clear()  # the file's own pages do as well
        return False

    def _pieces_of(self, entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
        """Where large pages can be, of what is read: what lies before the first of them, or behind the last, stays."""
        begins = range(-self._address % _LARGE_PAGE, len(self) - _LARGE_PAGE + 1, _LARGE_PAGE)
        pages = [begin for begin in begins if any(_touches(entry, begin) for entry in entries)]
        start = end = -1
        for begin in pages:
            if begin != end or end - start == _MOST_BYTES:
                if end > start:
                    yield start, end - start
                start = begin
            end = begin + _LARGE_PAGE
        if end > start:
            yield start, end - start

    def _fill(self, address: int, offset: int, size: int) -> None:
        memory = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        while memory:
            try:
                count = os.preadv(self._file, [memory], offset)
            except OSError as error:
                raise unreadable(self._path, error) from None
            if not count:
                message = "the file is shorter than its header says"
                raise BundleError(message, where=str(self._path), hint=RECOMPILE)
            memory, offset = memory[count:], offset + count


def _touches(entry: Entry, begin: int) -> bool:
    """Whether a part of a tensor lies in the large page at this offset."""
    return entry.offset < begin + _LARGE_PAGE and begin < entry.offset + entry.bytes


def _large_pages(size: int) -> int | None:
    """The address of memory that begins with a large page, a multiple of their size; None: there is no memory."""
    system, taken = _system(), size + _LARGE_PAGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    pages: int = system.mmap(None, taken, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if pages == _FAILED:
        return None
    before = -pages % _LARGE_PAGE
    if before:
        system.munmap(pages, before)
    system.munmap(pages + before + size, _LARGE_PAGE - before)
    system.madvise(pages + before, size, mmap.MADV_HUGEPAGE)
    return pages + before


@cache
def _can_place() -> bool:
    """Whether this is Linux, and gives large pages to who asks for them."""
    try:
        return "[never]" not in _ADVICE.read_text() and hasattr(ctypes.CDLL(None), "mremap")
    except OSError:
        return False


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    system.mremap.argtypes = [address, size, size, number, address]
    system.munmap.argtypes = [address, size]
    system.madvise.argtypes = [address, size, number]
    system.mmap.restype = system.mremap.restype = address
    return system
