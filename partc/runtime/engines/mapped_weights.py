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
from errno import ENOMEM
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError
from partc.format.dtypes import BY_SHORT, Array
from partc.format.layouts import ALIGNMENT
from partc.format.reading import RECOMPILE, unreadable
from partc.format.safetensors import Entry
from partc.runtime.engines.memory import aligned_zeros

_LARGE_PAGE = 2 << 20
"""Bytes of a large page, where a processor's small ones have 4 KiB."""
_MOST_BYTES = 16 << 20
"""The largest piece, bytes: Linux counts those that are mapped."""
_ADVICE = Path("/sys/kernel/mm/transparent_hugepage")
_MAY_MOVE, _MOVE_FIXED = 1, 2
"""Flags of mremap(2)."""
_MAP_FIXED, _NO_RESERVE = 0x10, 0x4000
"""Flags of mmap(2) that Python has no names for."""
_NOBODYS = 0
"""Rights of memory that is only kept free."""
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
            MemoryError: there is no room for it.
        """
        if not entries:
            return []
        try:
            with path.open("rb", buffering=0) as file:
                if not _can_place():
                    memory: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                else:
                    weights = _MappedWeights(path, os.dup(file.fileno()), entries)
                    self._unsettled.append(weakref.ref(weights))
                    memory = weights.memory()
                return [_tensor(memory, entry, path, file.fileno()) for entry in entries]
        except OSError as error:
            if error.errno == ENOMEM:
                raise MemoryError from None
            raise unreadable(path, error) from None

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


class _MappedWeights:
    """A file of weights at an address that stays its own, a multiple of a large page."""

    def __init__(self, path: Path, file: int, entries: Sequence[Entry]) -> None:
        """Take over the descriptor and map it; `entries` are the tensors that will be read. Raises OSError."""
        self._path, self._file = path, file
        weakref.finalize(self, os.close, file).atexit = False
        self._size = os.fstat(file).st_size
        room = self._size + 2 * _LARGE_PAGE  # up to where the last large page may reach
        start = _call(
            "mmap", None, room, _NOBODYS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, -1, 0
        )
        weakref.finalize(self, _system().munmap, start, room).atexit = False
        self._address = start + -start % _LARGE_PAGE
        self._put_file(0, self._size)
        self._pieces = deque(_pieces_of(entries) if self._size >= _LARGE_PAGE else ())
        """Offsets and bytes of those that lie in pages of the file."""

    def memory(self) -> Any:
        """The bytes of the file, which keep this alive."""
        memory: Any = (ctypes.c_char * self._size).from_address(self._address)
        memory.owner = self
        return memory

    def settle(self) -> bool:
        """Put the next piece into large pages; False where there is none, or no memory for it.

        Whoever reads there meanwhile reads the file or its copy: Linux changes the one for the other in one call.
        """
        if not self._pieces:
            return False
        offset, size = self._pieces.popleft()
        copy = _large_pages(size)
        if copy is not None:
            try:
                memory = memoryview((ctypes.c_char * size).from_address(copy)).cast("B")
                _read(self._path, self._file, memory[: self._size - offset], offset)
                _call("mremap", copy, size, size, _MAY_MOVE | _MOVE_FIXED, self._address + offset)
                return True
            except OSError:
                _system().munmap(copy, size)
                self._put_file(offset, min(size, self._size - offset))  # it may have made room for the copy
            except BundleError:
                _system().munmap(copy, size)
                raise
        self._pieces.clear()  # the file's own pages do as well
        return False

    def _put_file(self, offset: int, size: int) -> None:
        """Let the file's own bytes be at their place."""
        how = mmap.MAP_PRIVATE | _MAP_FIXED
        _call("mmap", self._address + offset, size, mmap.PROT_READ, how, self._file, offset)


def _tensor(memory: Any, entry: Entry, path: Path, file: int) -> Array:
    """A tensor where it lies, or a copy at an aligned address."""
    kind = BY_SHORT[entry.dtype].held
    if entry.offset % ALIGNMENT:
        copy = aligned_zeros(entry.shape, kind)
        _read(path, file, copy.reshape(-1).view(np.uint8).data, entry.offset)
        return copy
    return np.frombuffer(memory, kind, math.prod(entry.shape), entry.offset).reshape(entry.shape)


def _pieces_of(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Offsets and bytes of the large pages that hold something of a tensor, side by side where they are; O(bytes)."""
    start = end = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        for begin in range(
            max(entry.offset // _LARGE_PAGE * _LARGE_PAGE, end), entry.offset + entry.bytes, _LARGE_PAGE
        ):
            if begin != end or end - start == _MOST_BYTES:
                if end > start:
                    yield start, end - start
                start = begin
            end = begin + _LARGE_PAGE
    if end > start:
        yield start, end - start


def _read(path: Path, file: int, memory: memoryview, offset: int) -> None:
    """Fill memory from a place in a file. Linux reads 2 GiB at a time at most."""
    while memory:
        try:
            count = os.preadv(file, [memory], offset)
        except OSError as error:
            raise unreadable(path, error) from None
        if not count:
            raise BundleError("the file is shorter than its header says", where=str(path), hint=RECOMPILE)
        memory, offset = memory[count:], offset + count


def _large_pages(size: int) -> int | None:
    """The address of memory that begins with a large page, a multiple of their size; None: there is no memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        pages = _call("mmap", None, size + _LARGE_PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    except OSError:
        return None
    before = -pages % _LARGE_PAGE
    if before:
        _system().munmap(pages, before)
    _system().munmap(pages + before + size, _LARGE_PAGE - before)
    _system().madvise(pages + before, size, mmap.MADV_HUGEPAGE)
    return pages + before


@cache
def _can_place() -> bool:
    """Whether this is Linux, and gives large pages of 2 MiB to who asks for them; where it does not say so, we ask."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not hasattr(ctypes.CDLL(None), "mremap"):
        return False
    try:
        said, size = ((_ADVICE / name).read_text() for name in ("enabled", "hpage_pmd_size"))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return "[never]" not in said and int(size) == _LARGE_PAGE


def _call(name: str, *arguments: int | None) -> int:
    """The address that a function of the system gives; raises OSError where it fails."""
    found: int = getattr(_system(), name)(*arguments)
    if found == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    system.mremap.argtypes = [address, size, size, number, address]
    system.munmap.argtypes = [address, size]
    system.madvise.argtypes = [address, size, number]
    system.mmap.restype = system.mremap.restype = address
    return system
