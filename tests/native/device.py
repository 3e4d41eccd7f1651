"""A device of native/src/core behind the interface of `partc.runtime.core.device.device.Device`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, assert_never

import msgpack

from partc.errors import BundleError, InternalError, PartcError, RunError
from partc.format.build import build_json, seal_build
from partc.format.codec import decode, encode
from partc.format.dtypes import Array, as_float32
from partc.format.frames import to_array
from partc.format.message_parts import Sampling
from partc.format.messages import Sensed
from partc.format.placement import placement_json
from partc.format.role import Role
from partc.format.status import Vitals
from partc.runtime.core import events
from partc.runtime.core.commands import (
    Announce,
    Command,
    Compute,
    Connect,
    Draw,
    Leave,
    Load,
    Log,
    ReadRows,
    ReadSensors,
    Release,
    Reset,
    Send,
    WriteRows,
)
from partc.runtime.core.start import Start
from tests.native.formats import ask

_HEADER_LIMIT = 1 << 24
_CLASSES: dict[str, type[PartcError]] = {"bundle": BundleError, "internal": InternalError}


class NativeDevice:
    """A device of a process that runs `native/tests/core.cpp`."""

    def __init__(self, process: subprocess.Popen[bytes], role: Role, start: Start, now: float) -> None:
        self._process, self._role = process, role
        files = json.dumps(build_json(seal_build(role.build))), json.dumps(placement_json(role.placement))
        known = [json.dumps(placement_json(each)) for each in start.contingencies]
        times = float(start.patience_s), float(start.rejoin_s), float(start.linger_s)
        self._number = self._ask(
            "new", float(now), *files, known, start.incarnation, start.first_request, *times
        )
        self.deadline: float | None = None

    def on(self, event: events.Event, now: float) -> list[Command]:
        """Take an event; the commands that follow."""
        kind = {"ComputeFailed": "compute_failed"}.get(type(event).__name__) or _snake(type(event).__name__)
        self.deadline, commands = self._ask("on", self._number, float(now), kind, *_arguments(event))
        return [_command(*each) for each in commands]

    def _ask(self, *request: Any) -> Any:
        answer = msgpack.unpackb(ask(self._process, msgpack.packb(request)), strict_map_key=False)
        if isinstance(answer, str):
            raise InternalError(answer)
        return answer


def native_sample(
    process: subprocess.Popen[bytes], logits: Array, sampling: Sampling, positions: Sequence[int]
) -> list[Array]:
    """What a draw from rows of logits, (batch, vocabulary), brings."""
    parts = sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed
    request = ["sample", _tensor(logits[:, None, :]), *parts, list(positions), sampling.likely]
    return [_array(each) for each in msgpack.unpackb(ask(process, msgpack.packb(request)))]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")


def _tensor(array: Array) -> list[Any]:
    return [array.dtype.name, list(array.shape), array.tobytes()]


def _array(parts: Any) -> Array:
    dtype, shape, data = parts
    return to_array(data, dtype, shape)


def _error(error: PartcError) -> list[str]:
    kind = "run" if isinstance(error, RunError) else "bundle" if error.exit_code == 1 else "internal"
    return [kind, error.message, error.where or "", error.hint or "", getattr(error, "cause", "input")]


def _arguments(event: events.Event) -> Sequence[Any]:
    match event:
        case events.Loaded(epoch):
            return (epoch,)
        case events.LoadFailed(epoch, error):
            return epoch, _error(error)
        case events.RowsRead(rows):
            return (_tensor(rows),)
        case events.Connected(peer, address):
            return peer, address
        case events.Disconnected(origin):
            return (origin,)
        case events.Rejected(peer):
            return (peer,)
        case events.Received(origin, user, message, frames):
            return origin, user, encode(message), [bytes(frame) for frame in frames]
        case events.Unreadable(origin, error):
            return origin, _error(error)
        case events.Computed(values, seconds):
            return [_tensor(value) for value in values], float(seconds)
        case events.ComputeFailed(error):
            return (_error(error),)
        case events.SensorsRead(readings):
            return (encode(Sensed(vitals=Vitals(readings=readings))),)
        case events.Tick():
            return ()
        case _:
            assert_never(event)


def _command(kind: str, *parts: Any) -> Command:
    match kind:
        case "send":
            origin, header, frames = parts
            return Send(origin, decode(header, _HEADER_LIMIT), [memoryview(frame) for frame in frames])
        case "compute":
            submodule, slot, inputs, dims, resets, others = parts
            return Compute(submodule, slot, [_array(each) for each in inputs], dims, resets, tuple(others))
        case "draw":
            logits, positions, (sampling, *others) = parts
            numbers = as_float32(_array(logits), logits[0])[:, 0, :]
            return Draw(
                numbers, Sampling(*sampling), tuple(positions), tuple([Sampling(*each) for each in others])
            )
        case "load":
            return Load(parts[0], tuple(parts[1]))
        case "release":
            return Release(tuple(parts[0]))
        case "reset":
            return Reset(*parts)
        case "read":
            return ReadRows(*parts)
        case "write":
            submodule, slot, state, row, begin, rows = parts
            return WriteRows(submodule, slot, state, row, begin, _array(rows))
        case "connect":
            return Connect(*parts)
        case "sensors":
            return ReadSensors()
        case "announce":
            return Announce()
        case "log":
            return Log(*parts)
        case "leave":
            return Leave(None if parts[0] is None else _read_error(*parts[0]))
        case _:
            raise AssertionError(kind)


def _read_error(kind: str, message: str, where: str, hint: str, cause: Any) -> PartcError:
    if kind == "run":
        return RunError(message, where=where or None, hint=hint or None, cause=cause)
    return _CLASSES[kind](message, where=where or None, hint=hint or None)
