"""Changes of placement for tests: small rings, what happens to them, and what their devices are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from partc.format.frames import split_frames
from partc.format.message_parts import Held, Problem, Reached
from partc.format.messages import Message, Place, Prepare, Prepared
from partc.format.placement import Placement, placement_frames, seal_placement
from partc.format.role import Role
from partc.runtime.core.actions import Action, Tell
from partc.runtime.core.source.changes import Changes
from partc.runtime.core.source.members import Member
from tests.runtime.roles import chain, placement_of, roles_of

COMPILED = chain("a p0, b p1, c p2")
WITHOUT_B = chain("a p0 p1, c p2")
WITHOUT_C = chain("a p0, b p1 p2")
MOVED = chain("a p0, c p1 p2")
WITH_D = chain("a p0, b p1, d p2")
DEVICES = ("a", "b", "c", "d")
PATIENCE_S = 5.0
TICKET = b"ticket of place "
REACHED = (Reached(40, 0, 3),)
"""Progress of the only request in flight."""
CLIENT = b"client"
INCARNATION = {"a": 1, "b": 2, "c": 3}
"""Incarnations of the devices of a ring that stands."""

A = TypeVar("A")
M = TypeVar("M", bound=Message)


def role_of(device: str = "a", max_batch: int = 1, prompt_chunk: int | None = None) -> Role:
    """A device of the ring a, b, c; it holds all that it runs in any placement, and d is idle."""
    others = (WITHOUT_B, WITHOUT_C, MOVED, WITH_D)
    return roles_of(COMPILED, others=others, max_requests=2, max_batch=max_batch, prompt_chunk=prompt_chunk)[
        device
    ]


def without_b(epoch: int = 0) -> Placement:
    """A placement of a and c."""
    return seal_placement(replace(placement_of(WITHOUT_B, DEVICES), epoch=epoch))


def without_c(epoch: int = 0) -> Placement:
    """A placement of a and b."""
    return seal_placement(replace(placement_of(WITHOUT_C, DEVICES), epoch=epoch))


def moved(epoch: int = 0) -> Placement:
    """A placement of a and c, where the source has no more to do than before."""
    return seal_placement(replace(placement_of(MOVED, DEVICES), epoch=epoch))


def with_d(epoch: int = 0) -> Placement:
    """A placement of a, b and d."""
    return seal_placement(replace(placement_of(WITH_D, DEVICES), epoch=epoch))


def compiled(epoch: int = 0) -> Placement:
    """The placement of a, b and c."""
    return seal_placement(replace(role_of().placement, epoch=epoch))


def text_of(placement: Placement) -> bytes:
    """The text that `prepare` and `place` carry."""
    return b"".join(placement_frames(placement))


def id_of(placement: Placement) -> bytes:
    """Its digest."""
    return bytes.fromhex(placement.placement_id)


def frames_of(placement: Placement) -> list[memoryview]:
    """The same in frames."""
    return split_frames(memoryview(text_of(placement)))


def changes_of(*known: Placement) -> Changes:
    """Changes of the source, before any device is connected; the contingencies are `known`."""
    role = role_of()
    return Changes(role, (role.placement, *known), {}, PATIENCE_S)


def greet(changes: Changes, device: str, incarnation: int, epoch: int = 0) -> None:
    """A device is connected, which runs the compiled placement under some epoch."""
    changes.greeted(device, Member(incarnation, epoch, id_of(compiled(epoch))))


def standing(*known: Placement) -> Changes:
    """The ring stands: a, b and c have the incarnations 1, 2 and 3."""
    changes = changes_of(*known)
    for incarnation, device in enumerate(("a", "b", "c"), start=1):
        greet(changes, device, incarnation)
    assert list(changes.review((), (), 0.0)) == []
    return changes


def only(kind: type[A], actions: Iterable[object]) -> list[A]:
    """The actions of a kind."""
    return [action for action in actions if isinstance(action, kind)]


def told(kind: type[M], actions: Iterable[Action]) -> dict[str, M]:
    """Device → the message of a kind that it is told."""
    found = only(Tell, actions)
    return {tell.device: tell.message for tell in found if isinstance(tell.message, kind)}


def prepared(epoch: int, incarnation: int, *have: Held, problem: Problem | None = None) -> Prepared:
    """The answer to PREPARE."""
    return Prepared(epoch=epoch, incarnation=incarnation, have=have, problem=problem)


def prepare(
    placement: Placement,
    *requests: Reached,
    stands_still: bool = False,
    holders: Mapping[str, str] = {},
) -> Prepare:
    """A question whether a device can change over; the holders are those of sub-modules."""
    return Prepare(
        epoch=placement.epoch,
        placement=id_of(placement),
        addresses={},
        holders=dict(holders),
        requests=requests,
        stands_still=stands_still,
    )


def place() -> Place:
    """A client's wish."""
    return Place(ticket=TICKET)


def review(changes: Changes, now: float = 1.0, absent: tuple[str, ...] = ()) -> list[Action]:
    """What follows while a request is in flight."""
    return list(changes.review(absent, REACHED, now))


def lose(changes: Changes, device: str) -> list[Action]:
    """A device is lost."""
    changes.members.gone(device)
    return review(changes, absent=(device,))


def restart(changes: Changes, device: str, incarnation: int = 9, epoch: int = 0) -> list[Action]:
    """A device is back without its memory."""
    changes.members.gone(device)
    greet(changes, device, incarnation, epoch)
    return review(changes)


def wish(changes: Changes, now: float = 1.0) -> list[Action]:
    """A client asks for the placement of a and c."""
    assert list(changes.place(CLIENT, place(), without_b(), now)) == []
    return review(changes, now)


def answer(changes: Changes, *devices: str, at_rest: bool = False, now: float = 2.0) -> list[Action]:
    """Participants are prepared, with the incarnations that they have."""
    return [
        action
        for device in devices
        for action in changes.prepared(device, prepared(1, changes.members.life(device)), at_rest, now)
    ]


def asked(actions: list[Action]) -> set[str]:
    """The devices that PREPARE goes to."""
    return set(told(Prepare, actions))
