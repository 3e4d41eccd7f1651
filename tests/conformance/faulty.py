"""A runner with one fault: `python -m tests.conformance.faulty FAULT OPTIONS` is partc's own but for that.

`FAULTS` says of each which check of the kit must find it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from partc.format.message_parts import Row
from partc.format.messages import (
    Ack,
    Cancel,
    Close,
    Crossed,
    Data,
    Error,
    Fail,
    Hello,
    Message,
    Pong,
    Ready,
    Refuse,
    Timings,
    Token,
    Welcome,
)  # fmt: skip
from partc.format.messages import Result as Ended
from partc.runtime.core import events
from partc.runtime.shell import keys, loader, transport

Frames = Sequence[bytes | memoryview]
Sent = list[tuple[Any, Frames]]
OTHER = 2**40 + 1


@dataclass(frozen=True)
class Fault:
    """Something that a runner does wrong."""

    check: str
    """The check that must find it, with its place."""
    install: Callable[[], None]


@dataclass
class Count:
    """How often a message of a kind went by."""

    number: int = field(default=0)

    def next(self) -> int:
        self.number += 1
        return self.number - 1


def sends(kind: type, alter: Callable[[Any, Frames, int], Sent]) -> Callable[[], None]:
    """Alter what is sent of a kind; the third argument counts it."""

    def install() -> None:
        inner, count = transport.Transport.send, Count()

        def send(self: Any, origin: Any, message: Message, frames: Frames = ()) -> bool:
            if not isinstance(message, kind):
                return inner(self, origin, message, frames)
            taken = [inner(self, origin, *each) for each in alter(message, frames, count.next())]
            return all(taken)

        transport.Transport.send = send  # type: ignore[method-assign]

    return install


def takes(kind: type, alter: Callable[[Any, int], list[Any]]) -> Callable[[], None]:
    """Alter what is received of a kind; the second argument counts it."""

    def install() -> None:
        inner, count = transport.Transport.poll, Count()

        def poll(self: Any, timeout_s: float | None) -> list[Any]:
            found: list[Any] = []
            for event in inner(self, timeout_s):
                fits = isinstance(event, events.Received) and isinstance(event.message, kind)
                found += alter(event, count.next()) if fits else [event]
            return found

        transport.Transport.poll = poll  # type: ignore[method-assign]

    return install


def with_fields(**changes: Any) -> Callable[[Any, Frames, int], Sent]:
    """Other fields; a function makes a field of the message."""

    def alter(message: Any, frames: Frames, number: int) -> Sent:
        made = {name: each(message) if callable(each) else each for name, each in changes.items()}
        return [(replace(message, **made), frames)]

    return alter


def with_rows(**changes: Callable[[Row], Any]) -> Callable[[Any, Frames, int], Sent]:
    """Other rows in data."""

    def rows(message: Data) -> tuple[Row, ...]:
        return tuple(
            replace(row, **{name: each(row) for name, each in changes.items()}) for row in message.rows
        )

    return with_fields(rows=rows)


def never(message: Any, frames: Frames, number: int) -> Sent:
    return []


def twice(message: Any, frames: Frames, number: int) -> Sent:
    return [(message, frames)] * 2


def flipped(frames: Frames) -> list[bytes]:
    first = bytearray(frames[0])
    first[0] ^= 1
    return [bytes(first), *map(bytes, frames[1:])]


def flips(at: int) -> Callable[[Any, Frames, int], Sent]:
    """A bit of one message, or of all behind it."""
    return lambda message, frames, number: [(message, flipped(frames) if frames and number >= at else frames)]


def drops(at: int) -> Callable[[Any, Frames, int], Sent]:
    return lambda message, frames, number: [] if number == at else [(message, frames)]


def late() -> Callable[[Any, Frames, int], Sent]:
    """Each message with the next one."""
    held: Sent = []

    def alter(message: Any, frames: Frames, number: int) -> Sent:
        held.append((message, [bytes(frame) for frame in frames]))
        return [held.pop(0)] if len(held) > 1 else []

    return alter


def spec(**changes: Any) -> Callable[[Any, Frames, int], Sent]:
    """Another description of the first value."""
    return with_fields(values=lambda message: (replace(message.values[0], **changes), *message.values[1:]))


def again(alter: Callable[[Any], Any], kind: type = Data) -> Callable[[], None]:
    """A received message is another one."""
    return takes(kind, lambda event, number: [replace(event, message=alter(event.message))])


def patched(owner: Any, name: str, made: Callable[[Any], Any]) -> Callable[[], None]:
    """A function of the runner is another one, made of the one it was."""
    return lambda: setattr(owner, name, made(getattr(owner, name)))


def _sampling(**changes: Any) -> Callable[[], None]:
    from partc.runtime.core.device import sampling

    def made(inner: Any) -> Any:
        return lambda logits, given, row, position: inner(logits, replace(given, **changes), row, position)

    return patched(sampling, "_draw", made)


def _draws(alter: Callable[..., Any]) -> Callable[[], None]:
    from partc.runtime.core.device import sampling

    return patched(sampling, "_draw", lambda inner: lambda *given: alter(inner, *given))


def _null(name: str, made: Callable[[Any], Any]) -> Callable[[], None]:
    from partc.runtime.engines import null

    return patched(null, name, made)


def _core(module: str, name: str, made: Callable[[Any], Any]) -> Callable[[], None]:
    def install() -> None:
        import importlib

        owner: Any = importlib.import_module(f"partc.runtime.{module}")
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, made(getattr(owner, last)))

    return install


def _nothing(inner: Any) -> Any:
    return lambda *given, **named: None


def _later_welcomes(number_of: int) -> Callable[[], None]:
    """A gap is over: the peer awaits another frame than it says."""
    return takes(
        Welcome,
        lambda event, number: [
            replace(event, message=replace(event.message, next=number_of)) if event.message.next else event
        ],
    )


def _everybody(inner: Any) -> Any:
    return lambda self, public: inner(self, public) or "a"


def _exit_code(code: int) -> Callable[[], None]:
    def install() -> None:
        from partc.runtime import cli

        inner = cli.main
        cli.main = lambda *given: code if inner(*given) else 0

    return install


def _usage() -> None:
    import argparse

    def exits(self: Any, status: int = 0, message: str | None = None) -> None:
        raise SystemExit(1 if status else 0)

    argparse.ArgumentParser.exit = exits  # type: ignore[method-assign, assignment]


def _as_it_says(event: Any, number: int) -> list[Any]:
    return [replace(event, user=event.message.name)]


def _by_count() -> Callable[[Any, int], list[Any]]:
    return lambda event, number: [replace(event, message=replace(event.message, seq=number))]


def _in_order() -> Callable[[Any, int], list[Any]]:
    """Frames that come early are thrown away."""
    due = Count()

    def alter(event: Any, number: int) -> list[Any]:
        if event.message.seq > due.number:
            return []
        due.number = max(due.number, event.message.seq + 1)
        return [event]

    return alter


FAULTS: Mapping[str, Fault] = {
    # values
    "a bit of every tensor": Fault("link/middle", sends(Data, flips(0))),
    "a bit of the fourth tensor on": Fault("values/middle", sends(Data, flips(3))),
    "a bit of what the last device sends": Fault("values/last", sends(Data, flips(2))),
    "a frame too many": Fault("link/middle", sends(Data, lambda m, f, n: [(m, [*f, b"more"])])),
    "a frame that is short": Fault("link/middle", sends(Data, lambda m, f, n: [(m, [bytes(f[0])[:-4]])])),
    "another name of a value": Fault("link/middle", sends(Data, spec(name="hidden_3"))),
    "another type of a value": Fault("link/middle", sends(Data, spec(dtype="int32"))),
    "another shape of a value": Fault("link/middle", sends(Data, spec(shape=(8, 1)))),
    # rows
    "a wrong position": Fault("link/middle", sends(Data, with_rows(position=lambda row: row.position + 1))),
    "a wrong length": Fault("link/middle", sends(Data, with_rows(length=lambda row: 1))),
    "a wrong step": Fault("link/middle", sends(Data, with_rows(step=lambda row: row.step + 1))),
    "a wrong request number": Fault(
        "link/middle", sends(Data, with_rows(request=lambda row: row.request + 1))
    ),
    "a wrong row": Fault("link/middle", sends(Data, with_rows(row=lambda row: row.row + 1))),
    "a wrong branch": Fault("link/middle", sends(Data, with_rows(branch=lambda row: row.step))),
    "a wrong phase": Fault("link/middle", sends(Data, with_fields(phase="decode"))),
    "a wrong size": Fault("link/middle", sends(Data, with_fields(dims=lambda m: {**m.dims, "sequence": 3}))),
    "no opening": Fault("link/middle", sends(Data, with_fields(open=()))),
    # links
    "a dropped message": Fault("link/middle", sends(Data, drops(1))),
    "a doubled message": Fault("link/middle", sends(Data, twice)),
    "a late message": Fault("link/middle", sends(Data, late())),
    "numbers from 1": Fault("link/middle", sends(Data, with_fields(seq=lambda m: m.seq + 1))),
    "a number that stands still": Fault("link/middle", sends(Data, with_fields(seq=0))),
    "another session": Fault("link/middle", sends(Data, with_fields(session=OTHER))),
    "another epoch": Fault("link/middle", sends(Data, with_fields(epoch=1))),
    "no acknowledgement": Fault("ack/middle", sends(Ack, never)),
    "an acknowledgement of too much": Fault("ack/middle", sends(Ack, with_fields(seq=lambda m: m.seq + 1))),
    "an acknowledgement that stands still": Fault("ack/middle", sends(Ack, with_fields(seq=1))),
    "an acknowledgement of another session": Fault("ack/middle", sends(Ack, with_fields(session=OTHER))),
    "frames by arrival": Fault("repeated/middle", takes(Data, _by_count())),
    "no place for early frames": Fault("order/middle", takes(Data, _in_order())),
    "all is sent again": Fault("resend/middle", _later_welcomes(0)),
    "nothing is sent again": Fault("resend/middle", _later_welcomes(3)),
    "any epoch": Fault("strange/middle", again(lambda m: replace(m, epoch=0))),
    "any session": Fault("strange/middle", again(lambda m: replace(m, session=m.session % 1000))),
    # greetings
    "another plan in hello": Fault("hello/middle", sends(Hello, with_fields(plan=bytes(32)))),
    "another epoch in hello": Fault("hello/middle", sends(Hello, with_fields(epoch=3))),
    "an incarnation for each hello": Fault(
        "hello/middle", sends(Hello, with_fields(incarnation=lambda m: random.getrandbits(60)))
    ),
    "another name in welcome": Fault("hello/middle", sends(Welcome, with_fields(name="c"))),
    "another incarnation in welcome": Fault("hello/middle", sends(Welcome, with_fields(incarnation=5))),
    "never ready": Fault("hello/middle", sends(Ready, never)),
    "no refusal": Fault("builds/middle", sends(Refuse, never)),
    "a refusal without its cause": Fault(
        "names/middle", sends(Refuse, with_fields(problem=lambda m: replace(m.problem, cause="bug")))
    ),
    "every key is known": Fault("keys/middle", patched(keys.Keys, "name_of", _everybody)),
    "the name is believed": Fault("names/middle", takes(Hello, _as_it_says)),
    # what is wrong
    "no fail": Fault("refused-data/middle", sends(Fail, never)),
    "fail without its cause": Fault(
        "refused-data/middle", sends(Fail, with_fields(problem=lambda m: replace(m.problem, cause="input")))
    ),
    "types are not checked": Fault(
        "refused-data/middle", _core("core.links.headers", "check_specs", _nothing)
    ),
    "steps may jump": Fault("jumps/middle", _core("core.device.request", "Request._check_follows", _nothing)),
    "close is ignored": Fault("closed/middle", takes(Close, lambda event, number: [])),
    "pong with another number": Fault("ping/middle", sends(Pong, with_fields(token=lambda m: m.token ^ 1))),
    "no pong": Fault("ping/middle", sends(Pong, never)),
    # computing
    "a cache one row off": Fault(
        "values/middle",
        _null(
            "_write", lambda inner: lambda state, at, rows, mark: inner(state, np.asarray(at) + 1, rows, mark)
        ),
    ),
    "a cache that is never written": Fault("values/middle", _null("_write", _nothing)),
    "a state that is never rewritten": Fault("whole/middle", _null("_write", _nothing)),
    "a slot that remembers": Fault("again/middle", _core("engines.states", "States.reset", _nothing)),
    "a seed that is ignored": Fault("sampling/last", _sampling(seed=0)),
    "a temperature that is ignored": Fault("sampling/last", _sampling(temperature=1.0)),
    "a top_k that is ignored": Fault("sampling/last", _sampling(top_k=0)),
    "a top_p that is ignored": Fault("sampling/last", _sampling(top_p=1.0)),
    "draws without their row": Fault(
        "sampling/last", _draws(lambda inner, logits, given, row, at: inner(logits, given, 0, at))
    ),
    "draws one position off": Fault(
        "sampling/last", _draws(lambda inner, logits, given, row, at: inner(logits, given, row, at + 1))
    ),
    "probabilities that are off": Fault(
        "likely/last",
        sends(
            Data,
            with_fields(
                likely=lambda m: tuple(
                    tuple(replace(e, logprob=e.logprob - 0.01) for e in r) for r in m.likely
                )
            ),
        ),
    ),
    "no probabilities": Fault("likely/last", sends(Data, with_fields(likely=()))),
    # the source
    "a wrong sampled token": Fault(
        "values/source",
        sends(Ended, with_fields(tokens=lambda m: tuple((*r[:-1], (r[-1] + 1) % 17) for r in m.tokens))),
    ),
    "an answer that is cut": Fault(
        "values/source", sends(Ended, with_fields(tokens=lambda m: tuple(r[:-1] for r in m.tokens)))
    ),
    "a token that is not told": Fault("likely/source", sends(Token, drops(1))),
    "another reason of the end": Fault(
        "ends/source", sends(Ended, with_fields(finish=lambda m: tuple("length" for _ in m.finish)))
    ),
    "an error without its cause": Fault(
        "requests/source", sends(Error, with_fields(problem=lambda m: replace(m.problem, cause="bug")))
    ),
    "an error that is not told": Fault("requests/source", sends(Error, never)),
    "a cancelled request that goes on": Fault("cancel/source", takes(Cancel, lambda event, number: [])),
    # reports
    "no times": Fault("timings/middle", sends(Timings, never)),
    "times of nothing": Fault(
        "timings/middle", sends(Timings, lambda m, f, n: [(m, [bytes(len(bytes(each))) for each in f])])
    ),
    "a trace that is off": Fault("values/last", sends(Crossed, flips(0))),
    "no trace": Fault("values/last", sends(Crossed, never)),
    # folders
    "files are not checked": Fault("damage/middle", patched(loader, "verify_files", _nothing)),
    "another exit code": Fault("damage/middle", _exit_code(70)),
    "another exit code of usage": Fault("options/middle", _usage),
}


def main() -> int:
    """Run a device with the fault that the first word names."""
    FAULTS[sys.argv.pop(1)].install()
    from partc.runtime.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
