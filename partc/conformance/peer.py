"""A participant that the kit plays, message by message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from msgspec.structs import replace

from partc.conformance.bundles import LENGTH, MOST, VOCABULARY
from partc.conformance.findings import Mismatch
from partc.format.fields import FRAME_LIMIT
from partc.format.message_parts import Sampling
from partc.format.messages import AnyMessage, Data, Error, Hello, Message, Refuse, Submit, Welcome
from partc.format.role import load_role
from partc.runtime.core.events import Connected, Disconnected, Received, Rejected, Unreadable
from partc.runtime.shell.keys import Keys, load_client_keys, load_device_keys
from partc.runtime.shell.transport import Event, Transport

M = TypeVar("M")
Fits = Callable[[AnyMessage], bool]
ANSWER_S = 10.0
"""The time in which a runner must have answered."""
QUIET_S = 0.4
"""The time in which it would have answered, where it must not."""
_FRAME_LIMIT = 1 << 20
_SESSIONS = count(1)
"""A receiver goes on with a session that it knows, so each peer begins one of its own."""


class Peer:
    """One participant and its connections."""

    def __init__(self, build: Path, name: str, keys: Keys | None = None) -> None:
        """Have the keys of a device of a build, or of its `client`; or other ones."""
        role = load_role(build / "devices" / ("a" if name == "client" else name))
        own = load_client_keys(build) if name == "client" else load_device_keys(build / "devices" / name)
        self.transport = Transport(keys or own, _FRAME_LIMIT, 5.0, FRAME_LIMIT)
        self.name, self.session = name, next(_SESSIONS)
        self.plan, self.placement = bytes.fromhex(role.plan_id), bytes.fromhex(role.placement_id)
        self._came: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transport.close()

    def connect(self, target: str, address: str) -> None:
        """Connect, and wait until the connection stands."""
        self.transport.connect(target, address)
        self.event(Connected)

    def send(self, origin: object, message: Message, *frames: bytes) -> None:
        """Send a message; data belongs to the session of this peer, unless it names one."""
        if isinstance(message, Data) and message.session == 0:
            message = replace(message, session=self.session)
        self.transport.send(origin, message, frames)  # type: ignore[arg-type]

    def greet(self, target: str, **changes: object) -> AnyMessage:
        """Say hello; the answer."""
        hello = Hello(
            name=self.name, session=self.session, plan=self.plan, placement=self.placement, epoch=0, incarnation=1
        )  # fmt: skip
        self.send(target, replace(hello, **changes))
        return self.received(lambda message: isinstance(message, Welcome | Refuse)).message

    def welcome(self, hello: Received) -> None:
        """Accept a connection."""
        self.send(hello.origin, Welcome(name=self.name, incarnation=1, epoch=0, next=0, info={}))

    def event(self, kind: type[M], seconds: float = ANSWER_S) -> M:
        """The next event of a kind; others are left for later."""
        event = self._taken(lambda event: isinstance(event, kind), seconds)
        if not isinstance(event, kind):
            raise Mismatch(f"{self.name} waited {seconds:.0f} s for {kind.__name__}")
        return event

    def received(self, fits: type | Fits, seconds: float = ANSWER_S) -> Received:
        """The next message that fits: of a kind, or by a function. Others are left for later."""
        accept = (lambda message: isinstance(message, fits)) if isinstance(fits, type) else fits
        event = self._taken(lambda event: isinstance(event, Received) and accept(event.message), seconds)
        if not isinstance(event, Received):
            what = fits.__name__ if isinstance(fits, type) else "a message that fits"
            raise Mismatch(f"{self.name} waited {seconds:.0f} s for {what}")
        return event

    def gets_none(self, kind: type, seconds: float = QUIET_S) -> None:
        """Raise `Mismatch` if a message of a kind comes after all."""
        event = self._taken(
            lambda event: isinstance(event, Received) and isinstance(event.message, kind), seconds
        )
        if isinstance(event, Received):
            raise Mismatch(f"{self.name} got {event.message!r:.200}, and none was due")

    def stays_out(self, seconds: float = 1.0) -> None:
        """Raise `Mismatch` if a connection comes to stand."""
        event = self._taken(lambda event: isinstance(event, Connected | Received | Rejected), seconds)
        if isinstance(event, Connected | Received):
            raise Mismatch(f"{self.name} got through with a key that nobody knows")

    def hangs_up(self) -> None:
        """Raise `Mismatch` unless the other end closes the connection."""
        self.event(Disconnected)

    def _taken(self, fits: Callable[[Event], bool], seconds: float) -> Event | None:
        """The first event that fits, of those that came and those that come in time; None: there is none."""
        end = time.monotonic() + seconds
        while True:
            for number, event in enumerate(self._came):
                if isinstance(event, Unreadable):
                    raise Mismatch(f"{self.name} got a message that cannot be read: {event.error.message}")
                if fits(event):
                    return self._came.pop(number)
            if time.monotonic() >= end:
                return None
            self._came += self.transport.poll(0.02)


def _submit(**changes: object) -> Submit:
    plain = Submit(
        ticket=bytes(16),
        prompts=((1,),),
        max_new_tokens=2,
        sampling=Sampling(),
        stop=(),
        ignore_eos=True,
        trace=False,
        values=(),
    )
    return replace(plain, **changes)


WRONG: Mapping[str, Submit] = {
    "a token that is none": _submit(prompts=((VOCABULARY,),)),
    "an empty prompt": _submit(prompts=((),)),
    "no prompt": _submit(prompts=()),
    "too many sequences": _submit(prompts=((1,),) * (MOST + 1)),
    "a prompt that is too long": _submit(prompts=((1,) * (LENGTH + 1),)),
    "an answer that is too long": _submit(max_new_tokens=LENGTH),
    "known tokens of another number of sequences": _submit(known=((1,), (2,))),
}


def refusals_of(build: Path, address: str) -> Mapping[str, Error | None]:
    """What a source says to requests that the build does not allow; None where nothing."""
    found: dict[str, Error | None] = {}
    with Peer(build, "client") as client:
        client.connect("a", address)
        if not isinstance(client.greet("a"), Welcome):
            raise Mismatch("the client is not welcome")
        for number, (what, submit) in enumerate(WRONG.items(), 1):
            ticket = number.to_bytes(16, "big")
            client.send("a", replace(submit, ticket=ticket))
            try:
                found[what] = _answer_to(client, ticket)
            except Mismatch:
                found[what] = None
    return found


def _answer_to(client: Peer, ticket: bytes) -> Error | None:
    answer = client.received(lambda message: getattr(message, "ticket", None) == ticket).message
    return answer if isinstance(answer, Error) else None


def bytes_of(frames: Sequence[memoryview]) -> list[bytes]:
    """Frames as bytes."""
    return [bytes(frame) for frame in frames]
