"""A schedule, and requests for it, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from partc.format.messages import (
    Pong,
    Submit,
    Timings,
)
from partc.format.role import Role
from partc.runtime.core.actions import Action, Begin
from partc.runtime.core.commands import Send
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.start import Start
from partc.runtime.core.step import Step
from tests.runtime.core.roles import roles, submit

CLIENT_ROUTE = b"client 1"
FLOOR_S = 5.0

A = TypeVar("A")


def schedule_of(
    role: Role | None = None,
    absent: tuple[str, ...] = (),
    *,
    rejoin_s: float = 0.0,
    linger_s: float = 0.0,
) -> Schedule:
    """The first request has the number 100; the ring is complete unless a test says otherwise."""
    start = Start(0, first_request=100, patience_s=FLOOR_S, rejoin_s=rejoin_s, linger_s=linger_s)
    schedule = Schedule.of(role or roles()["a"], start, 0.0)
    schedule.absent = absent
    return schedule


def ticket(number: int) -> bytes:
    return number.to_bytes(16, "big")


def ask(
    schedule: Schedule, number: int = 1, now: float = 0.0, origin: bytes = CLIENT_ROUTE, **changes: Any
) -> list[Action]:
    """A client's request for two tokens after [1, 2, 5]."""
    message: Submit = submit([1, 2, 5], **{"ticket": ticket(number), **changes})
    return list(schedule.submit(origin, message, (), now))


def only(kind: type[A], actions: Iterable[object]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def told(kind: type[A], actions: Iterable[object]) -> list[A]:
    """Messages of a kind among the actions, which go to clients."""
    return only(kind, [send.message for send in only(Send, actions)])


def emit(schedule: Schedule, step: Step, *tokens: int, now: float = 1.0) -> list[Action]:
    return list(schedule.emitted(step, {"token": np.array(tokens)}, now))


def begun(actions: Iterable[Action]) -> Step:
    """The step that begins."""
    (begin,) = only(Begin, actions)
    return begin.step


def timings(request: int, device: str) -> Timings:
    return Timings(request=request, device=device, columns=("step",), values=())


def pong(computing: bool = False, doing: str = "idle") -> Pong:
    return Pong(token=0, computing=computing, doing=doing)
