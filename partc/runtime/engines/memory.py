"""Memory of engines: aligned, or mapped from files."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError
from partc.format.dtypes import BY_SHORT, Array
from partc.format.layouts import ALIGNMENT
from partc.format.reading import RECOMPILE
from partc.format.safetensors import Entry, Header

_IS_LINUX = sys.platform == "linux"
_RELEASE_EVERY_S = 0.002
_MOST_READ_BYTES = 16 << 20
"""Bytes of mapped files that may be in memory while they are packed into a form of the engine's own."""


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros at an aligned address; pages that nobody writes to take no memory."""
    size = math.prod(shape) * dtype.itemsize
    block = np.zeros(size + ALIGNMENT, np.uint8)
    skip = -block.ctypes.data % ALIGNMENT
    return block[skip : skip + size].view(dtype).reshape(shape)


class MappedFiles:
    """Files mapped to be read, for an engine that keeps most of what it reads in a form of its own."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError or ValueError where a path is no file that holds something."""
        self.of: dict[Path, mmap.mmap] = {}
        """Path → its bytes."""
        for path in paths:
            with path.open("rb") as file:
                self.of[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Take again and again out of memory what is read of the files meanwhile; else they were there twice.

        A thread of its own does so: whoever reads lets nobody know how far it is. What it reads again comes back from
        the system's cache. Only these mappings are touched, whose addresses are nobody else's as long as this lives.
        """
        if not (_IS_LINUX and self.of):
            yield
            return
        done = threading.Event()
        thread = threading.Thread(target=self._release_often, args=(done, _mapped_bytes()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _release_often(self, done: threading.Event, before: int) -> None:
        while not done.wait(_RELEASE_EVERY_S):
            if _mapped_bytes() - before > _MOST_READ_BYTES:
                for data in self.of.values():
                    data.madvise(mmap.MADV_DONTNEED)
                before = _mapped_bytes()


def _mapped_bytes() -> int:
    """Bytes of files in this process's memory."""
    return int(Path("/proc/self/statm").read_bytes().split()[2]) * mmap.PAGESIZE


def release_mapped(folder: Path) -> None:
    """Take what this process has read of mapped files of a folder out of its memory.

    Engines that keep weights in a form of their own leave behind what they made it from. What is used again after all
    comes back from the system's cache. Mappings that were written to are left alone.
    """
    if not _IS_LINUX:
        return
    root = os.fsencode(folder.resolve()) + b"/"
    system = ctypes.CDLL(None)
    # Per mapping a line `start-end rights offset device inode path`, then lines `Key: number kB`.
    for text in re.split(rb"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_bytes()):
        span, _, *_, path = text.partition(b"\n")[0].split(maxsplit=5)
        if path.startswith(root) and re.search(rb"^Anonymous: +0 kB$", text, re.MULTILINE):
            start, end = (int(address, 16) for address in span.split(b"-"))
            system.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def map_tensors(path: Path) -> dict[str, tuple[Array, str]]:
    """Every tensor of a safetensors file and its element type, mapped, not read; the few that lie askew are copied.

    Raises:
        BundleError: it is no such file.
    """
    header = Header(path, BundleError, RECOMPILE)
    entries = [header.entry(name) for name in header.names()]
    with path.open("rb") as file:
        # A private mapping: tensors count as writeable, which DLPack insists on, and the file stays as it is.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return {entry.name: _mapped(data, entry) for entry in entries}


def _mapped(data: mmap.mmap, entry: Entry) -> tuple[Array, str]:
    row, shape = BY_SHORT[entry.dtype], entry.shape
    name = row.long
    array = np.frombuffer(data, row.held, math.prod(shape), entry.offset).reshape(shape)
    if array.ctypes.data % ALIGNMENT == 0:
        return array, name
    copy = aligned_zeros(shape, array.dtype)
    copy[...] = array
    return copy, name
