"""Stages of a cut model from Python, by ctypes alone: no partc, no numpy.

    python stage.py one FOLDER IDS FILE           the values that the source's stage sends in its first step, into FILE
    python stage.py chain IDS COUNT FOLDER ...    COUNT tokens behind the prompt IDS, by the stages of all devices

IDS is "1,2,3". PARTC_STAGE_LIBRARY names libpartc_stage.so.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
from pathlib import Path

ABI, AXES = 1, 8
OK, MORE = 0, 1
GIVEN, RECEIVED, SENT, EMITTED, LOGITS = range(5)
WIDTHS = (8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1)
"""Bytes of the element types, by their numbers."""


_Fields = list[tuple[str, type]]
_NUMBER, _NUMBERS = c.c_int64, c.POINTER(c.c_int64)


def _all(kind: type, names: str) -> _Fields:
    return [(name, kind) for name in names.split()]


class Error(c.Structure):
    """partc_stage_error_t."""

    _fields_ = [("code", c.c_int32), ("text", c.c_char * 1020)]


class Facts(c.Structure):
    """partc_stage_facts_t."""

    _fields_ = _all(c.c_char_p, "device source model task target plan_id placement_id")
    _fields_ += _all(c.POINTER(c.c_char_p), "phases")
    _fields_ += _all(_NUMBER, "slots max_batch max_sequence vocabulary step_requests states")


class Value(c.Structure):
    """partc_stage_value_t."""

    _fields_ = [*_all(c.c_char_p, "name peer"), *_all(c.c_int32, "direction dtype message order")]


class State(c.Structure):
    """partc_stage_state_t."""

    _fields_ = [*_all(c.c_char_p, "submodule name"), *_all(c.c_int32, "dtype is_whole")]
    _fields_ += _all(_NUMBER, "positions heads width")


class Size(c.Structure):
    """partc_stage_size_t."""

    _fields_ = [("symbol", c.c_char_p), ("size", _NUMBER)]


class Sampling(c.Structure):
    """partc_stage_sampling_t."""

    _fields_ = [("temperature", c.c_double), ("top_k", _NUMBER), ("top_p", c.c_double), ("seed", c.c_uint64)]


class Step(c.Structure):
    """partc_stage_step_t."""

    _fields_ = [
        ("phase", c.c_char_p),
        *_all(_NUMBER, "batch sequence"),
        *_all(_NUMBERS, "position length slots"),
    ]
    _fields_ += [("slot_count", _NUMBER), ("sampling", c.POINTER(Sampling))]
    _fields_ += [("sizes", c.POINTER(Size)), ("size_count", _NUMBER)]


class Tensor(c.Structure):
    """partc_stage_tensor_t."""

    _fields_ = [("name", c.c_char_p), ("data", c.c_void_p), ("bytes", _NUMBER)]
    _fields_ += _all(c.c_int32, "dtype is_made")


def numbers(*values: int) -> c.Array[c.c_int64]:
    """A list of whole numbers as C has it."""
    return (c.c_int64 * len(values))(*values)


def bytes_of(ids: list[int]) -> bytes:
    """Token ids as a tensor of int64."""
    return b"".join(one.to_bytes(8, "little", signed=True) for one in ids)


def step_of(phase: str, sequence: int, position: int, slot: int = 0) -> Step:
    """A step of one sequence, whose token is the likeliest."""
    return Step(phase.encode(), 1, sequence, numbers(position), None, numbers(slot), 1, None, None, 0)


class Stage:
    """The stage of one device's folder."""

    def __init__(self, folder: str, threads: int = 0) -> None:
        self._library = c.CDLL(os.environ.get("PARTC_STAGE_LIBRARY", "libpartc_stage.so"))
        self._library.partc_stage_close.argtypes = [c.c_void_p]
        self._handle, self.waits_for = c.c_void_p(), ""
        if self._library.partc_stage_abi() != ABI:
            raise RuntimeError("this library is of another version than this program")
        self._call("open", os.fsencode(folder), threads, c.byref(self._handle), stage=None)

    def close(self) -> None:
        """Give back its memory."""
        self._library.partc_stage_close(self._handle)
        self._handle = c.c_void_p()

    def facts(self) -> Facts:
        """The facts of a stage, which are known before any step."""
        self._call("describe", c.byref(found := Facts()))
        return found

    def values(self, phase: str) -> list[Value]:
        """The values of the steps of a phase, in the order of its program."""
        found: list[Value] = []
        while self._call("value", phase.encode(), c.c_int64(len(found)), c.byref(value := Value())) == OK:
            found.append(value)
        return found

    def states(self) -> list[State]:
        """Its states, in the order of their numbers."""
        found = [State() for _ in range(self.facts().states)]
        for index, state in enumerate(found):
            self._call("state", c.c_int64(index), c.byref(state))
        return found

    def shape(self, step: Step, value: str) -> list[int]:
        """The shape of a value in a step."""
        shape, rank = (c.c_int64 * AXES)(), c.c_int32()
        self._call("shape", c.byref(step), value.encode(), shape, c.byref(rank))
        return list(shape[: rank.value])

    def reset(self, slot: int, batch: int = 1) -> None:
        """Begin a request in a slot."""
        self._call("reset", c.c_int64(slot), c.c_int64(batch), None, c.c_int64(0))

    def step(self, step: Step, inputs: dict[str, bytes]) -> dict[str, bytes]:
        """Compute as far as the inputs reach; what was made. `waits_for` is empty where the step is over."""
        values = {value.name: value for value in self.values(step.phase.decode())}
        wanted = [value for value in values.values() if value.direction >= SENT]
        held = {name: c.create_string_buffer(data, len(data)) for name, data in inputs.items()}
        rooms = [c.create_string_buffer(self._bytes(step, value)) for value in wanted]
        given = [_tensor(values[name.encode()], data) for name, data in held.items()]
        made = [_tensor(value, room) for value, room in zip(wanted, rooms, strict=True)]
        outputs, count = (Tensor * len(made))(*made), c.c_int64(len(made))
        self._call(
            "step", c.byref(step), (Tensor * len(given))(*given), c.c_int64(len(given)), outputs, count
        )
        found = zip(wanted, rooms, outputs, strict=True)
        return {value.name.decode(): room.raw for value, room, output in found if output.is_made}

    def read_rows(self, slot: int, state: int, row: int, begin: int, end: int) -> bytes:
        """Rows of a state of a sequence."""
        held = self.states()[state]
        data = c.create_string_buffer((end - begin) * held.heads * held.width * WIDTHS[held.dtype])
        self._rows("read_rows", slot, state, row, begin, end, data)
        return data.raw

    def write_rows(self, slot: int, state: int, row: int, begin: int, end: int, rows: bytes) -> None:
        """Put rows that a stage gave into a slot that was reset."""
        self._rows("write_rows", slot, state, row, begin, end, c.create_string_buffer(rows, len(rows)))

    def settle(self) -> bool:
        """Whether there may be more to do."""
        return self._call("settle") == MORE

    def _rows(
        self, name: str, slot: int, state: int, row: int, begin: int, end: int, data: c.Array[c.c_char]
    ) -> None:
        places = map(c.c_int64, (slot, state, row, begin, end))
        self._call(name, *places, data, c.c_int64(len(data)))

    def _bytes(self, step: Step, value: Value) -> int:
        size = WIDTHS[value.dtype]
        for axis in self.shape(step, value.name.decode()):
            size *= axis
        return size

    def _call(self, name: str, *arguments: object, stage: object = 0) -> int:
        """Call a function; raises RuntimeError with its text where it refuses."""
        function = getattr(self._library, f"partc_stage_{name}")
        first = () if stage is None else (self._handle,)
        code: int = function(*first, *arguments, c.byref(error := Error()))
        if code < 0:
            raise RuntimeError(error.text.decode())
        if name == "step":
            self.waits_for = error.text.decode()
        return code


def _tensor(value: Value, data: c.Array[c.c_char]) -> Tensor:
    """A tensor over memory that the caller keeps."""
    return Tensor(value.name, c.addressof(data), len(data), value.dtype, 0)


def values_of_ring(stages: list[Stage], step: Step, there: dict[str, bytes]) -> dict[str, bytes]:
    """All that a step of all stages makes: values go to whoever waits for them, as soon as they are there."""
    phase = step.phase.decode()
    awaited = {
        stage: {value.name.decode(): value for value in stage.values(phase) if value.direction <= RECEIVED}
        for stage in stages
    }
    left = -1
    while awaited:
        if left == (left := len(awaited) - len(there) + sum(map(len, awaited.values()))):
            raise RuntimeError("a value comes from nowhere: name the folders of all devices, each once")
        for stage, values in list(awaited.items()):
            late = {value.message for name, value in values.items() if name not in there}
            here = [name for name, value in values.items() if name in there and value.message not in late]
            there = {**there, **stage.step(step, {name: there[name] for name in here})}
            awaited[stage] = {name: value for name, value in values.items() if name not in here}
            if not stage.waits_for:
                del awaited[stage]
    return there


def step_of_ring(stages: list[Stage], step: Step, ids: list[int]) -> int:
    """The token that a step brings."""
    made = values_of_ring(stages, step, {"input_ids": bytes_of(ids)})
    every = (value for stage in stages for value in stage.values(step.phase.decode()))
    (token,) = (value.name.decode() for value in every if value.direction == EMITTED)
    return int.from_bytes(made[token], "little", signed=True)


def chain(stages: list[Stage], ids: list[int], count: int) -> list[int]:
    """Tokens behind a prompt."""
    for stage in stages:
        stage.reset(0)
    tokens = [step_of_ring(stages, step_of("prefill", len(ids), 0), ids)]
    while len(tokens) < count:
        step = step_of("decode", 1, len(ids) + len(tokens) - 1)
        tokens.append(step_of_ring(stages, step, tokens[-1:]))
    return tokens


def one(stage: Stage, ids: list[int]) -> bytes:
    """The values that the source's stage sends in the step of a prompt."""
    stage.reset(0)
    made = stage.step(step_of("prefill", len(ids), 0), {"input_ids": bytes_of(ids)})
    return b"".join(made[value.name.decode()] for value in stage.values("prefill") if value.direction == SENT)


def main() -> None:
    """Do what the words of the command line say."""
    kind, *words = sys.argv[1:]
    if kind == "one":
        folder, ids, file = words
        Path(file).write_bytes(one(Stage(folder), [int(word) for word in ids.split(",")]))
    else:
        ids, count, *folders = words
        stages = [Stage(folder) for folder in folders]
        print(*chain(stages, [int(word) for word in ids.split(",")], int(count)))


if __name__ == "__main__":
    main()
