"""Tensors in the frames of a message: raw elements in row-major order, little-endian."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.format.fields import FRAME_LIMIT
from partc.format.message_parts import TensorSpec

COPY_BELOW_BYTES = 16 * 1024
"""Smaller frames are copied when they are made, which costs less than to keep track of their memory."""


def to_array(buffer: memoryview | bytes, dtype: str, shape: Sequence[int]) -> Array:
    """A tensor over the bytes of a frame, without a copy where the frame is aligned; read-only."""
    array = np.frombuffer(buffer, DTYPES[dtype]).reshape(shape)
    return array if array.flags.aligned else array.copy()


def to_frame(array: Array) -> memoryview:
    """The bytes of a tensor; the very ones where it is large and contiguous."""
    if array.nbytes < COPY_BELOW_BYTES:
        return memoryview(array.tobytes())
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_frames(array: Array) -> list[memoryview]:
    """The bytes of a tensor in frames that everybody takes; `join_tensors` is the inverse."""
    return split_frames(to_frame(array))


def split_frames(data: memoryview) -> list[memoryview]:
    """Bytes in frames that everybody takes."""
    return [data[start : start + FRAME_LIMIT] for start in range(0, data.nbytes, FRAME_LIMIT)]


def join_tensors(specs: Sequence[TensorSpec], frames: Sequence[memoryview]) -> dict[str, Array]:
    """Tensors whose bytes may come in several frames each."""
    data = memoryview(b"".join(frames))
    arrays, at = {}, 0
    for spec in specs:
        size = DTYPES[spec.dtype].itemsize * math.prod(spec.shape)
        arrays[spec.name] = to_array(data[at : at + size], spec.dtype, spec.shape).copy()
        at += size
    return arrays
