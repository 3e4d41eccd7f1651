"""Traces: what happens to one device, and what it does then; golden/protocol has one a file.

```
prose                 the point of the case
~~~device NAME        the role (fences are three backquotes): lines `ring NAME …` (the first is the source), then
                      `PHASE, …:` and the device's program, indented; or in place of them `chain …` (1); and the
                      lines of settings below where they differ
~~~placement NAME     a placement that may follow: `chain …`
~~~trace              the lines below; `pytest tests/golden --update-golden` rewrites the commands among them

setting := "max_batch" N | "max_requests" N           1
         | "step_requests" N                           1
         | "prompt_chunk" N                            none
         | "prompt_steps" N COST …                     sizes of a step, each with its cost; none
         | "step_tokens" N COST …                      tokens of a request in a step, each with its cost; none
         | "logs" N                                    1: lines of the log are shown; 0: they are not
         | "patience" N | "rejoin" N | "linger" N      seconds: 5, 0, 0
         | "first_request" N                           1
         | "contingencies" NAME …                      placements that the source has for a loss; none
         | "picture" NAME TOKEN N                      an input float32[1, 3], for whose features a prompt has N TOKENs
         | "holds" SUBMODULE …                         on the device's disk; all that it runs in any placement
         | "rewritten" SUBMODULE …                     whose state, [batch, 4], is one that a step rewrites; none
line    := [ event | command ] [ "#" comment ]
event   := seconds what                      on one clock, from 0, where the process starts with nothing loaded
what    := "loaded" [ epoch ] | "unloadable" epoch problem | "tick"
         | "connected" device [ address ] | "disconnected" origin | "rejected" device
         | "from" origin [ "as" user ] ":" message        `as`: the name that the key of the connection belongs to
         | "unreadable" origin                            a message arrived whose header cannot be read
         | "computed" [ name=value … ]                    outputs of `compute`, or of `draw`: token=[7],
                                                        likely=[[[7, -0.5]]]
         | "sensors" [ name=value, … ]                    readings of the sensors: battery=0.29
         | "failed" problem                               what was to be computed failed
         | "read"                                         the rows that `read` asked for
         | "stands"                                       short for all that leads to a ring that stands (2)
         | "steps" N                                      short for N requests of one step (3)
command := "->" ( origin ":" message | "compute" … | "draw" … | "sensors" | "announce" | "leave" [ problem ]
         | "log" event(field=value, …)
         | "load" … | "release" … | "reset" … | "read" … | "write" … | "connect" device [ address ] )
origin  := device                            the connection that this device opened to it
         | "@" device                        a connection that this one opened; further ones are @device' and so on
```

Commands belong to the event above them, in this order. A message is `kind(field=value, …)`
(`tests/golden/trace_messages.py` says which fields are left out). A comment is for people and not compared by other
implementations. The process starts with `incarnation` 1, and counts its sessions from there, by the names of the peers
that it connects to: those it sends to, and the source. A `tick` comes no earlier than the device asked for one.

(1) `chain a p0 p1, b p2`: the source a runs the sub-modules p0 and p1, b runs p2; p0 reads `input_ids` and makes
`p0_out`, which p1 reads, and so on; the last one makes logits, and its device samples and sends the token to the
source.
All chains of a file have the same sub-modules in this order. Each sub-module has a state `NAME.state`, float32[batch,
24, 4], as in all traces. The placement of the block `device` is called `compiled`.

(2) `loaded`; then for each peer that it connects to, by name, `connected` and `welcome()`; then `hello()` from each
device that it receives from, at the source from every other one, and there `ready()` from each as well. Commands of
`stands` are not shown.

(3) On a device that receives, computes and sends once: N times `data(prefill, seq=n, rows=[n.0@0+1], …)` and
`computed`, for n from 0. Commands are not shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Problem, Sampling
from partc.format.program import Recv
from partc.format.readings import Readings
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
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Event,
    Loaded,
    LoadFailed,
    Origin,
    Received,
    Rejected,
    RowsRead,
    SensorsRead,
    Tick,
    Unreadable,
)
from tests.golden.trace_messages import (
    difference,
    print_message,
    print_problem,
    print_values,
    read_message,
    read_problem,
    rows_of_state,
    zeros,
)
from tests.golden.trace_setting import Setting
from tests.golden.trace_values import TraceError, parse_call, print_call, print_value

_ROUNDING_S = 1e-9


def play(setting: Setting, text: str) -> str:
    """The trace `text` with the commands that really follow from its events; everything else is kept.

    Raises:
        TraceError: a line is no line of a trace, or a tick comes that nobody asked for.
    """
    player = _Player(setting)
    return "".join(f"{line}\n" for given in text.splitlines() for line in player.lines(given))


class _Player:
    """A device, and what it computes."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.role = setting, setting.role
        self.device = Device(setting.role, setting.start, 0.0)
        self.work: Compute | Draw | None = None
        self.reads: deque[ReadRows] = deque()

    def lines(self, given: str) -> Iterator[str]:
        """A line, and the commands that follow from it."""
        text = given.partition("#")[0].strip()
        if text.startswith("->"):
            return
        yield given.rstrip()
        if not text:
            return
        seconds, _, what = text.partition(" ")
        now = float(seconds)
        word, _, count = what.strip().partition(" ")
        if word in ("stands", "steps"):
            for event in self._standing() if word == "stands" else self._steps(int(count)):
                self._on(event, now)
            return
        for command in self._on(self._event(what.strip(), now), now):
            yield f"       -> {self._command(command)}"

    def _on(self, event: Event, now: float) -> Sequence[Command]:
        if isinstance(event, Tick):
            due = self.device.deadline
            if due is None or due > now + _ROUNDING_S:
                raise TraceError(f"no tick is due at {now}, but at {due}")
            now = max(now, due)
        commands = self.device.on(event, now)
        for command in commands:
            if isinstance(command, Compute | Draw):
                self.work = command
            if isinstance(command, ReadRows):
                self.reads.append(command)
        return [one for one in commands if self.setting.logs or not isinstance(one, Log)]

    # -- events

    def _event(self, what: str, now: float) -> Event:
        word, _, rest = what.partition(" ")
        match word:
            case "loaded":
                return Loaded(int(rest or 0))
            case "unloadable":
                epoch, _, problem = rest.partition(" ")
                return LoadFailed(int(epoch), read_problem(problem).error())
            case "read":
                return RowsRead(self._rows())
            case "tick":
                return Tick()
            case "connected":
                return Connected(*rest.split())
            case "disconnected":
                return Disconnected(_origin(rest))
            case "rejected":
                return Rejected(rest)
            case "from":
                return self._received(rest)
            case "unreadable":
                return Unreadable(_origin(rest), RunError("a message that cannot be read", cause="refused"))
            case "computed":
                return self._computed(rest)
            case "sensors":
                return SensorsRead(msgspec.convert(parse_call(f"sensors({rest})").named, Readings))
            case "failed":
                return ComputeFailed(read_problem(rest).error())
            case _:
                raise TraceError(f"{what!r} is no event")

    def _received(self, text: str) -> Received:
        head, _, call = text.partition(":")
        name, _, user = (part.strip() for part in head.partition(" as "))
        origin = _origin(name)
        message, frames = read_message(parse_call(call), self.setting, name.strip("@'"))
        return Received(origin, user or None, message, frames)  # type: ignore[arg-type]

    def _computed(self, text: str) -> Computed:
        work, self.work = self.work, None
        if work is None:
            raise TraceError("nothing is computed")
        given = parse_call(f"computed({text})").named
        if isinstance(work, Draw):
            likely = np.array(given.get("likely", np.zeros((0, 0, 2))), np.float64)
            extra = [likely[..., 0].astype(np.int64), likely[..., 1]] if len(likely) else []
            return Computed([np.array(given["token"], np.int64), *extra], 0.0)
        names = self.role.submodules[work.submodule].outputs
        return Computed([zeros(self.role.types[name], work.dims) for name in names], 0.0)

    def _rows(self) -> Array:
        if not self.reads:
            raise TraceError("no rows are read")
        read = self.reads.popleft()
        return rows_of_state(self.role, read.submodule, read.end - read.begin)

    def _standing(self) -> Iterator[Event]:
        role, device = self.role, self.role.device
        yield Loaded()
        for peer in sorted({*role.send, role.source} - {device}):
            yield Connected(peer)
            yield self._said(peer, peer, "welcome")
        others = sorted({*role.receive, *(role.ring if role.is_source else ())} - {device})
        for peer in others:
            yield self._said(peer.encode(), peer, "hello")
            if role.is_source:
                yield self._said(peer.encode(), peer, "ready")

    def _steps(self, count: int) -> Iterator[Event]:
        first = next(item for item in self.role.programs["prefill"] if isinstance(item, Recv))
        for number in range(count):
            values = ", ".join(first.values)
            yield self._received(
                f"@{first.device}: data(prefill, seq={number}, rows=[{number}.0@0+1], {values})"
            )
            yield self._computed("")

    def _said(self, origin: Origin, peer: str, kind: str) -> Received:
        message, _ = read_message(parse_call(kind), self.setting, peer)
        return Received(origin, None, message)  # type: ignore[arg-type]

    # -- commands

    def _command(self, command: Command) -> str:
        match command:
            case Send(origin, message, frames):
                text = print_message(message, frames, self.setting, self.role.device)
                return f"{_print_origin(origin)}: {text}"
            case Compute(submodule=name, slot=slot, inputs=inputs, resets=resets):
                arrays = zip(self.role.submodules[name].inputs, inputs, strict=True)
                named = {"slot": str(slot)} if slot else {}
                if command.others:
                    named["others"] = print_value(command.others)
                return "compute " + print_call(
                    name, print_values(arrays), named | ({"resets": "true"} if resets else {})
                )
            case Draw(sampling=sampling, positions=positions, others=others):
                named = {"positions": print_value(positions)}
                if sampling != Sampling():
                    named["sampling"] = print_value(difference(sampling, Sampling()))
                if others:
                    named["others"] = print_value([difference(other, Sampling()) for other in others])
                return "draw " + print_call("logits", (), named)
            case ReadSensors():
                return "sensors"
            case Announce():
                return "announce"
            case Log(name, fields):
                return "log " + print_call(
                    name, (), {key: print_value(value) for key, value in fields.items()}
                )
            case Load(epoch, names):
                return print_call("load", names, {"epoch": str(epoch)})
            case Release(names):
                return print_call("release", names, {})
            case Reset(slot, dims):
                return print_call("reset", (), {"slot": str(slot), "dims": print_value(dims)})
            case ReadRows():
                return "read " + _print_rows(command, command.end)
            case WriteRows():
                return "write " + _print_rows(command, command.begin + len(command.rows))
            case Connect(peer, address):
                return f"connect {peer} {address}".rstrip()
            case Leave(error):
                return "leave" if error is None else f"leave {print_problem(Problem.of(error))}"


def _print_rows(command: ReadRows | WriteRows, end: int) -> str:
    numbers = {"slot": command.slot, "row": command.row, "begin": command.begin}
    named = {name: str(number) for name, number in numbers.items() if number}
    return print_call(command.submodule, (), named | {"end": str(end)})


def _origin(text: str) -> Origin:
    return text[1:].encode() if text.startswith("@") else text


def _print_origin(origin: Origin) -> str:
    return origin if isinstance(origin, str) else f"@{origin.decode()}"
