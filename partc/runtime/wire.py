"""The bytes of a message: a msgpack header in the first frame, raw tensors in the frames behind it.

Nothing here is ever unpickled, and nothing is compressed. A header is read under the strictest limits that
msgpack has, then every field is checked against a table (control messages) or against the manifest (data)
before anything uses it. docs/wire.md describes the same for other implementations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from partc.errors import RunError
from partc.format.build import TensorType
from partc.format.dtypes import DTYPES, Array
from partc.format.program import CHUNK, Recv
from partc.format.role import Role
from partc.runtime.messages import check_fields

VERSION = 1
MIN_FRAME_LIMIT = 64 * 1024
"""Every participant takes frames of this size, bytes; so control messages never depend on the plan."""
COPY_BELOW_BYTES = 16 * 1024
"""Smaller frames are copied when they are made, which costs less than to keep track of their memory."""
_TEXT_BYTES_PER_TOKEN = 16
_HEADER_BYTES = 4096
_INT_BYTES = 9

Fields = dict[str, Any]
TensorSpec = tuple[str, str, tuple[int, ...]]
"""Name, dtype, shape."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the first step of a request says about it to every device."""

    sampling: Mapping[str, float | int]
    trace: bool = False
    """Whether every device returns the tensors that it receives."""


@dataclass(frozen=True, slots=True)
class Step:
    """Which step of which request something belongs to, and its sizes."""

    request: int
    """Counts up at the source; never used twice."""
    slot: int
    """Which of the pre-allocated states the request has, below max_requests."""
    step: int
    """Counts from 0; the prefill is 0, or as many higher as it has parts before it."""
    phase: str
    """The program to run: prefill or decode; chunk for a part of a prompt behind which more comes."""
    dims: Mapping[str, int]
    """The size of every symbol in this step."""
    position: tuple[int, ...] = ()
    """(batch,) valid tokens in the cache of each sequence."""
    length: tuple[int, ...] = ()
    """(batch,) valid new tokens of each sequence."""
    opening: Opening | None = None
    """With step 0."""

    def next_token(self) -> Step:
        """The decode step behind this one."""
        position = tuple(map(sum, zip(self.position, self.length, strict=True)))
        dims = {**self.dims, "sequence": 1} if "sequence" in self.dims else self.dims
        return Step(self.request, self.slot, self.step + 1, "decode", dims, position, (1,) * len(position))


@dataclass(frozen=True, slots=True)
class Data:
    """The header of a data message."""

    plan: bytes
    epoch: int
    session: int
    seq: int
    step: Step
    values: tuple[TensorSpec, ...]


def encode_data(data: Data) -> bytes:
    """The header frame of a data message."""
    step = data.step
    fields: Fields = {
        "v": VERSION,
        "kind": "data",
        "plan": data.plan,
        "epoch": data.epoch,
        "session": data.session,
        "seq": data.seq,
        "request": step.request,
        "slot": step.slot,
        "step": step.step,
        "phase": step.phase,
        "dims": step.dims,
        "position": step.position,
        "length": step.length,
        "values": data.values,
    }
    if step.opening is not None:
        fields["open"] = {"sampling": step.opening.sampling, "trace": step.opening.trace}
    return _pack(fields)


def encode_control(kind: str, plan: bytes, epoch: int, fields: Mapping[str, Any]) -> bytes:
    """The header frame of any other message; its fields are held against the table on both ends."""
    message = {"v": VERSION, "kind": kind, "plan": plan, "epoch": epoch, **fields}
    check_fields(kind, message)
    return _pack(message)


def decode(frame: bytes | memoryview, limit: int) -> Fields:
    """The fields of a header frame, each of the right type.

    Raises:
        RunError: too long, not msgpack, another version, an unknown kind, a field too many or too few or
        wrong.
    """
    if len(frame) > limit:
        raise RunError(f"a header of {len(frame)} bytes, at most {limit} are allowed")
    try:
        fields = msgpack.unpackb(
            frame,
            raw=False,
            use_list=True,
            strict_map_key=True,
            max_str_len=limit,
            max_bin_len=64,
            max_array_len=limit,
            max_map_len=256,
            max_ext_len=0,
        )
    except (ValueError, RecursionError, msgpack.UnpackException, msgpack.exceptions.StackError) as error:
        raise RunError(f"a header that is not msgpack: {error}") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("v"), int):
        raise RunError("a header without a version")
    if fields["v"] != VERSION:
        hint = "install the same version of partc on all devices"
        raise RunError(f"wire version {fields['v']}, this end speaks {VERSION}", hint=hint)
    check_fields(fields.get("kind"), fields)
    return fields


def read_data(fields: Fields) -> Data:
    """The typed header of a data message whose fields `decode` has checked."""
    opening = fields.get("open")
    step = Step(
        request=fields["request"],
        slot=fields["slot"],
        step=fields["step"],
        phase=fields["phase"],
        dims=fields["dims"],
        position=tuple(fields["position"]),
        length=tuple(fields["length"]),
        opening=None if opening is None else Opening(opening["sampling"], opening["trace"]),
    )
    values = read_specs(fields["values"])
    return Data(fields["plan"], fields["epoch"], fields["session"], fields["seq"], step, values)


def read_specs(values: Iterable[Sequence[Any]]) -> tuple[TensorSpec, ...]:
    """The tensors that a header announces."""
    return tuple((name, dtype, tuple(shape)) for name, dtype, shape in values)


def check_step(step: Step, manifest: Role) -> None:
    """Hold the numbers of a step against what the plan allows.

    Raises:
        RunError: with the field that is wrong.
    """
    model = manifest.model
    if step.slot >= model.max_requests:
        raise RunError(f"slot {step.slot}, there are {model.max_requests}")
    begins, is_chunked = step.phase != "decode", CHUNK in manifest.programs
    if (
        step.phase not in manifest.programs
        or begins < (step.step == 0)
        or begins > (is_chunked or step.step == 0)
    ):
        raise RunError(f"step {step.step} is no step of {step.phase!r}")
    if (step.step == 0) != (step.opening is not None):
        raise RunError("a request is opened by its step 0, and by no other")
    for name, size in step.dims.items():
        most = manifest.dims.get(name)
        if most is None or size > most:
            raise RunError(f"{name} is {size}, at most {most or 0} is planned for")
    if manifest.has_step_inputs:
        _check_rows(step, manifest)


def _check_rows(step: Step, manifest: Role) -> None:
    rows, new = step.dims.get("batch", 1), step.dims.get("sequence", 1)
    if not len(step.position) == len(step.length) == rows or rows > manifest.model.max_batch:
        raise RunError(f"{rows} sequences with {len(step.position)} positions and {len(step.length)} lengths")
    for position, length in zip(step.position, step.length, strict=True):
        if not 1 <= length <= new or position + new > manifest.model.max_sequence:
            most = manifest.model.max_sequence
            raise RunError(f"{length} of {new} tokens at position {position}, max_sequence is {most}")


def check_values(
    specs: Sequence[TensorSpec],
    sizes: Sequence[int],
    types: Mapping[str, TensorType],
    dims: Mapping[str, int],
) -> None:
    """Hold announced tensors, and the bytes that came, against their declared types under `dims`.

    Raises:
        RunError: with the value and what is wrong with it.
    """
    check_sizes(specs, sizes, check_specs(specs, types, dims))


def check_specs(
    specs: Sequence[TensorSpec], types: Mapping[str, TensorType], dims: Mapping[str, int]
) -> tuple[int, ...]:
    """Hold announced tensors against their declared types under `dims`; the bytes that each must have.

    Raises:
        RunError: with the value and what is wrong with it.
    """
    for name, dtype, shape in specs:
        declared = types.get(name)
        if declared is None:
            raise RunError(f"{name!r} does not belong here")
        if dtype != declared.dtype:
            raise RunError(f"{name!r} is {dtype}, the plan says {declared.dtype}")
        try:
            expected = declared.sizes(dims)
        except KeyError as error:
            raise RunError(f"{name!r} needs the size of {error}") from None
        if shape != expected:
            raise RunError(f"{name!r} has the shape {list(shape)}, the plan says {list(expected)}")
    return tuple(math.prod(shape) * DTYPES[dtype].itemsize for _, dtype, shape in specs)


def check_sizes(specs: Sequence[TensorSpec], sizes: Sequence[int], expected: Sequence[int]) -> None:
    """Hold the bytes that came against those that announced tensors must have.

    Raises:
        RunError: with the value and what is wrong with it.
    """
    if len(specs) != len(sizes):
        raise RunError(f"{len(specs)} tensors are announced, {len(sizes)} came")
    for (name, dtype, shape), size, right in zip(specs, sizes, expected, strict=True):
        if size != right:
            raise RunError(f"{name!r} has {size} bytes, not those of {dtype}{list(shape)}")


def to_array(buffer: memoryview | bytes, dtype: str, shape: Sequence[int]) -> Array:
    """A tensor over the bytes of a frame, without a copy where the frame is aligned; read-only."""
    array = np.frombuffer(buffer, DTYPES[dtype]).reshape(shape)
    return array if array.flags.aligned else array.copy()


def to_frame(array: Array) -> memoryview:
    """The bytes of a tensor; of a large one that is contiguous, the very ones."""
    if array.nbytes < COPY_BELOW_BYTES:
        return memoryview(array.tobytes())
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_frames(array: Array) -> list[memoryview]:
    """The bytes of a tensor in frames that everybody takes; `results.read_tensors` joins them."""
    data = to_frame(array)
    return [data[start : start + MIN_FRAME_LIMIT] for start in range(0, data.nbytes, MIN_FRAME_LIMIT)]


def awaited(manifest: Role) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """(phase, peer, names) of every message that the programs wait for."""
    return frozenset(
        (phase, instruction.device, instruction.values)
        for phase, program in manifest.programs.items()
        for instruction in program
        if isinstance(instruction, Recv)
    )


def header_limit(manifest: Role) -> int:
    """The longest header that a device of this plan takes, bytes; the source's covers a client's prompts."""
    model = manifest.model
    names = sum(64 + 4 * len(name) for name in (*manifest.types, *manifest.dims))
    prompts = model.max_batch * model.max_sequence * _TEXT_BYTES_PER_TOKEN if manifest.is_source else 0
    return max(MIN_FRAME_LIMIT, _HEADER_BYTES + names + 2 * model.max_batch * _INT_BYTES + prompts)


def frame_limit(manifest: Role) -> int:
    """The largest frame that this device takes, bytes: a header, or the largest tensor that it receives."""
    names = {name for _, _, names in awaited(manifest) for name in names}
    names |= set(manifest.inputs) if manifest.is_source else set()
    tensors = [tensor_bytes(manifest.types[name], manifest.dims) for name in names]
    return max([header_limit(manifest), *tensors])


def client_frame_limit(manifest: Role) -> int:
    """The largest frame that a client takes, bytes: texts, or an output; `manifest` is the source's."""
    model = manifest.model
    texts = model.max_batch * model.max_sequence * 4 * _TEXT_BYTES_PER_TOKEN
    tensors = [tensor_bytes(tensor, manifest.dims) for tensor in manifest.outputs.values()]
    return max([MIN_FRAME_LIMIT, _HEADER_BYTES + texts, *tensors])


def tensor_bytes(tensor: TensorType, dims: Mapping[str, int]) -> int:
    """Bytes of a tensor under a binding of its symbols."""
    return math.prod(tensor.sizes(dims)) * DTYPES[tensor.dtype].itemsize


def _pack(fields: Fields) -> bytes:
    return bytes(msgpack.packb(fields, use_bin_type=True))
