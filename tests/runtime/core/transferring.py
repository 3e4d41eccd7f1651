"""One end of a way that rows take, for tests: a device that asks for rows, or has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from partc.format.build import State, Submodule
from partc.format.frames import to_frames
from partc.format.message_parts import Opening, Reached, Sampling, TensorSpec
from partc.format.messages import Rows, Want
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Send
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.transfer import Transfer
from partc.runtime.core.links.links import Links
from partc.runtime.core.step import Step
from tests.runtime.core.changing import PATIENCE_S, only, prepare, role_of, with_d, without_c
from tests.runtime.core.link_end import welcome


class End:
    """Rows at one device; `b` runs p1, `d` nothing yet."""

    def __init__(self, device: str, role: Role | None = None) -> None:
        self.role = role or role_of(device)
        self.links = Links(self.role, 1)
        self.requests = Requests(Script.of(self.role))
        self.transfer = Transfer(self.role, self.requests, self.links, PATIENCE_S)

    def link(self, peer: str) -> list[Action]:
        """A connection to a peer stands, which `connect` opened or the role asks for."""
        list(self.links.connected(peer))
        self.links.outgoing.welcomed(peer, welcome(peer))
        return list(self.transfer.fetches.linked(peer))

    def open(self, steps: int, *ends: tuple[int, ...], slot: int = 0, request: int = 40) -> None:
        """A request has gone through so many steps; `ends` are the valid tokens after those of the prompt."""
        length = ends[0] if ends else (3,)
        dims = {"batch": len(length), "sequence": max(length)}
        opening = Opening(request, Sampling())
        step = Step(request, slot, 0, "prefill", dims, (0,) * len(length), length, opening)
        opened = self.requests._admit(step, 0.0)
        opened.steps = steps
        opened._ends = list(ends)

    def begin(
        self,
        *requests: Reached,
        epoch: int = 1,
        stands_still: bool = False,
        holders: Mapping[str, str] = {"p1": "b", "p2": "c"},
    ) -> list[Action]:
        """The change to the placement in which b runs p1 and p2, or d runs p2."""
        placement = without_c(epoch) if self.role.device == "b" else with_d(epoch)
        message = prepare(placement, *requests, stands_still=stands_still, holders=holders)
        return list(self.transfer.begin(Role(self.role.build, placement), message, 1.0))

    def came(
        self, peer: str = "c", now: float = 2.0, shape: tuple[int, ...] = (3, 1, 4), **changes: Any
    ) -> list[Action]:
        """A part of p2's rows."""
        array = np.zeros(shape, np.float32)
        message = rows(TensorSpec("p2.state", "float32", array.shape), **changes)
        return list(self.transfer.came(peer, message, to_frames(array), now))


def rows(*values: TensorSpec, **changes: Any) -> Rows:
    """The only part of the first step of p2, but for some changes."""
    facts: dict[str, Any] = {
        "epoch": 1, "request": 40, "submodule": "p2", "begin": 0, "end": 1, "part": 0, "parts": 1, "sequences": 1,
        "state": "p2.state", "row": 0, "position": 0, "values": values,
    }  # fmt: skip
    return Rows(**{**facts, **changes})


def want(**changes: Any) -> Want:
    """The question for all steps of p1, but for some changes."""
    facts: dict[str, Any] = {
        "epoch": 1, "request": 40, "submodule": "p1", "begin": 0, "end": 0, "part": 0, "waits": True,
    }  # fmt: skip
    return Want(**{**facts, **changes})


def questions(actions: list[Action]) -> list[tuple[int, int, int]]:
    """(begin, end, part) of each."""
    messages = [send.message for send in only(Send, actions)]
    return [(item.begin, item.end, item.part) for item in messages if isinstance(item, Want)]


def of_states(role: Role, submodule: str, *states: State) -> Role:
    """The same role, where a sub-module has other states."""
    changed = [
        Submodule(item.name, item.file, item.weights, item.inputs, item.outputs, states)
        if item.name == submodule
        else item
        for item in role.build.submodules
    ]
    return role.changed(submodules=tuple(changed))
