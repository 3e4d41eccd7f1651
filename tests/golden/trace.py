"""Traces: what happens to one device, and what it does then; golden/protocol has one a file.

```
prose                 the point of the case
~~~device NAME        the role (fences are three backquotes): lines `ring NAME …` (the first is the source), and where
                      they differ from 1, none, 5 and 1: `max_batch N`, `max_requests N`, `prompt_chunk N`,
                      `patience N`, `first_request N`; then `PHASE, …:` and its program, indented
~~~trace              the lines below; `pytest tests/golden --update-golden` rewrites the commands among them

line    := [ event | command ] [ "#" comment ]
event   := seconds what                      on one clock, from 0, where the process starts with nothing loaded
what    := "loaded" | "tick"
         | "connected" device | "disconnected" origin | "rejected" device
         | "from" origin [ "as" user ] ":" message        `as`: the name that the key of the connection belongs to
         | "unreadable" origin                            a message arrived whose header cannot be read
         | "computed" [ name=value … ]                    outputs of `compute`, or of `draw`: token=[7]
         | "failed" problem                               what was to be computed failed
         | "stands"                                       short for all that leads to a ring that stands (1)
         | "steps" N                                      short for N requests of one step (2)
command := "->" origin ":" message | "->" "compute" … | "->" "draw" … | "->" "announce" | "->" "leave" [ problem ]
origin  := device                            the connection that this device opened to it
         | "@" device                        a connection that this one opened; further ones are @device' and so on
```

Commands belong to the event above them, in this order. A message is `kind(field=value, …)`
(`tests/golden/trace_messages.py` says which fields are left out). A comment is for people and not compared by other
implementations. The process starts with `incarnation` 1, and counts its sessions from there, by the names of the peers
that it connects to: those it sends to, and the source. A `tick` comes no earlier than the device asked for one.

(1) `loaded`; then for each peer that it connects to, by name, `connected` and `welcome()`; then `hello()` from each
device that it receives from, at the source from every other one, and there `ready()` from each as well. Commands of
`stands` are not shown.

(2) On a device that receives, computes and sends once: N times `data(prefill, seq=n, rows=[n.0@0+1], …)` and
`computed`, for n from 0. Commands are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import asdict

from partc.errors import RunError
from partc.format.message_parts import Problem, Sampling
from partc.format.program import Recv
from partc.format.role import Role
from partc.runtime.core.commands import (
    Announce,
    Command,
    Compute,
    Connect,
    Draw,
    Leave,
    Load,
    ReadRows,
    Release,
    Reset,
    Send,
    WriteRows,
)  # fmt: skip
from partc.runtime.core.device import Device
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Event,
    Loaded,
    Origin,
    Received,
    Rejected,
    Tick,
    Unreadable,
)
from partc.runtime.core.start import Start
from tests.golden.trace_messages import (
    difference,
    print_message,
    print_problem,
    print_values,
    read_message,
    read_problem,
    zeros,
)
from tests.golden.trace_values import TraceError, parse_call, print_call, print_value
from tests.runtime.roles import roles_of

_ROUNDING_S = 1e-9
_LIMITS = ("max_batch", "max_requests", "prompt_chunk")
_STARTS = {"patience": "patience_s", "first_request": "first_request"}


@dataclass(frozen=True)
class Setting:
    """A device before anything has happened to it."""

    role: Role
    start: Start


def parse_setting(device: str, text: str) -> Setting:
    """Read the role of a device.

    Raises:
        TraceError: a line is not understood.
    """
    facts: dict[str, list[str]] = {}
    programs: dict[str, list[str]] = {}
    phases: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if line.endswith(":"):
            phases = [phase.strip() for phase in line[:-1].split(",")]
            programs.update((phase, []) for phase in phases)
        elif line[0].isspace():
            for phase in phases:
                programs[phase].append(line.strip())
        else:
            key, *words = line.split()
            facts[key] = words
    own = {phase: "\n".join(lines) for phase, lines in programs.items()}
    everybody = {name: own if name == device else dict.fromkeys(own, "") for name in facts.pop("ring")}
    limits = {key: int(facts.pop(key)[0]) for key in _LIMITS if key in facts}
    numbers = {_STARTS[key]: int(words[0]) for key, words in facts.items()}
    role = roles_of(everybody, **limits)[device]  # type: ignore[arg-type]
    return Setting(role, Start(incarnation=1, **numbers))  # type: ignore[arg-type]


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
        self.role = setting.role
        self.device = Device(setting.role, setting.start, 0.0)
        self.work: Compute | Draw | None = None

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
        return commands

    # -- events

    def _event(self, what: str, now: float) -> Event:
        word, _, rest = what.partition(" ")
        match word:
            case "loaded":
                return Loaded()
            case "tick":
                return Tick()
            case "connected":
                return Connected(rest)
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
            case "failed":
                return ComputeFailed(read_problem(rest).error())
            case _:
                raise TraceError(f"{what!r} is no event")

    def _received(self, text: str) -> Received:
        head, _, call = text.partition(":")
        name, _, user = (part.strip() for part in head.partition(" as "))
        origin = _origin(name)
        message, frames = read_message(parse_call(call), self.role, name.strip("@'"))
        return Received(origin, user or None, message, frames)  # type: ignore[arg-type]

    def _computed(self, text: str) -> Computed:
        work, self.work = self.work, None
        if work is None:
            raise TraceError("nothing is computed")
        given = parse_call(f"computed({text})").named
        if isinstance(work, Draw):
            return Computed([np.array(given["token"], np.int64)], 0.0)
        names = self.role.submodules[work.submodule].outputs
        return Computed([zeros(self.role.types[name], work.dims) for name in names], 0.0)

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
        message, _ = read_message(parse_call(kind), self.role, peer)
        return Received(origin, None, message)  # type: ignore[arg-type]

    # -- commands

    def _command(self, command: Command) -> str:
        match command:
            case Send(origin, message, frames):
                text = print_message(message, frames, self.role, self.role.device)
                return f"{_print_origin(origin)}: {text}"
            case Compute(submodule=name, slot=slot, inputs=inputs, resets=resets):
                arrays = zip(self.role.submodules[name].inputs, inputs, strict=True)
                named = {"slot": str(slot)} if slot else {}
                return "compute " + print_call(
                    name, print_values(arrays), named | ({"resets": "true"} if resets else {})
                )
            case Draw(sampling=sampling, positions=positions):
                named = {"positions": print_value(positions)}
                if sampling != Sampling():
                    named["sampling"] = print_value(difference(sampling, Sampling()))
                return "draw " + print_call("logits", (), named)
            case Load() | Release() | Reset() | ReadRows() | WriteRows() | Connect():
                fields = {key: print_value(value) for key, value in asdict(command).items()}
                return f"{type(command).__name__.lower()} {print_call('', (), fields)}"
            case Announce():
                return "announce"
            case Leave(error):
                return "leave" if error is None else f"leave {print_problem(Problem.of(error))}"


def _origin(text: str) -> Origin:
    return text[1:].encode() if text.startswith("@") else text


def _print_origin(origin: Origin) -> str:
    return origin if isinstance(origin, str) else f"@{origin.decode()}"
