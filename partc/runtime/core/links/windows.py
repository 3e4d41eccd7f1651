"""Frames that may be unacknowledged on a link; both of its ends find the same number from the placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partc.format.program import Program
from partc.format.role import Role
from partc.runtime.core.step import MOST_FORCED

ACK_EVERY = 8
"""Frames after which an acknowledgement leaves at once."""
_SPARE_FRAMES = 64


def out_window(role: Role, peer: str) -> int:
    """Frames to a device that may be unacknowledged; it finds the same number for them (`in_window`)."""
    return _window(role, [sum(m.device == peer for item in p for m in item.sends) for p in _all(role)])


def in_window(role: Role, peer: str) -> int:
    """Frames from a device that may be unacknowledged."""
    return _window(role, [sum(m.device == peer for item in p for m in item.awaits) for p in _all(role)])


def _all(role: Role) -> Iterable[Program]:
    return role.programs.values()


def _window(role: Role, messages: Sequence[int]) -> int:
    """All steps that are under way at once of every request and a prompt in parts, and some."""
    model = role.model
    steps = (MOST_FORCED + model.most_chunks) * model.max_requests
    return ACK_EVERY + steps * max(1, *messages) + _SPARE_FRAMES
