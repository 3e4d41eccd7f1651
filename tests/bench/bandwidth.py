"""The bandwidth of memory: a streaming read, to compare with the bytes that a model reads for a token."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

READ_BYTES = 1_000_000_000
BLAS_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables for a process that calls `streaming_read`: numpy's BLAS must not take threads of its own."""


def streaming_read(threads: int) -> tuple[Callable[[], float], int]:
    """The dot product of 1 GB with itself, a part of it on each thread; and how many bytes one call reads.

    One product reads every cache line once and does next to nothing with it. It reaches what hand-written loops of
    four streams and AVX-512 reach on the machines where both were tried.
    """
    parts = np.ones((threads, READ_BYTES // 4 // threads), np.float32)
    if threads == 1:
        return lambda: float(np.dot(parts[0], parts[0])), parts.nbytes
    pool = ThreadPoolExecutor(threads)
    return lambda: sum(pool.map(lambda part: float(np.dot(part, part)), parts)), parts.nbytes
