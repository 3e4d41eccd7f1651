"""The requests of all devices of a ring, without links: a message is delivered when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partc.format.dtypes import Array
from partc.format.role import Role
from partc.runtime.core.actions import Action, Emitted, Failed, Forward
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.sampling import drawn
from partc.runtime.core.device.script import Script
from partc.runtime.core.step import Step
from partc.runtime.engines.contract import Engine, load_engine
from tests.runtime.core.roles import ids_of, step_of

COMPUTE_S = 0.001

Flying = tuple[str, str, Step, Mapping[str, Array]]
"""Receiver, sender, step, values."""


@dataclass
class Network:
    """Every device computes by the engine `null`; failures are raised."""

    roles: Mapping[str, Role]
    requests: dict[str, Requests] = field(init=False)
    air: list[Flying] = field(default_factory=list)
    tokens: dict[int, list[list[int]]] = field(default_factory=dict)
    now: float = 0.0
    _engines: dict[str, Engine] = field(init=False)
    _work: dict[str, Compute | Draw] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests = {name: Requests(Script.of(role)) for name, role in self.roles.items()}
        self._engines = {name: load_engine(role, Path()) for name, role in self.roles.items()}

    @property
    def source(self) -> Requests:
        return self.requests["a"]

    def begin(self, step: Step, inputs: Mapping[str, Array]) -> None:
        self._take("a", self.source.begin(step, inputs, self._tick()))

    def open(self, request: int, slot: int | None = None, step: int = 0) -> None:
        """Begin a step at the source, for a prompt of three tokens."""
        made = step_of(request, step, slot)
        self.begin(made, ids_of(made, request + 1))

    def deliver(self, index: int = 0) -> None:
        self.put(*self.air.pop(index))

    def put(self, device: str, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        """Deliver a message that may be none of the air's."""
        self._take(device, self.requests[device].deliver(peer, step, values, self._tick()))

    def advance(self) -> None:
        """All that follows without a message."""
        while any(map(self.goes_on, self.requests)):
            pass

    def goes_on(self, device: str) -> bool:
        """Let a device compute once, if a step of it can go on."""
        self._take(device, self.requests[device].advance(self._tick()))
        work = self._work.pop(device, None)
        if work is None:
            return False
        values = self._compute(device, work)
        self._take(device, self.requests[device].computed(values, COMPUTE_S, self._tick()))
        return True

    def settle(self, choose: Callable[[], int] = lambda: 0) -> None:
        """All that follows from what is ready, message by message."""
        self.advance()
        while self.air:
            self.deliver(choose())
            self.advance()

    def close(self, number: int) -> None:
        for requests in self.requests.values():
            requests.close(number)

    def heads(self) -> list[int]:
        """The messages that are the first of their links."""
        links = [item[:2] for item in self.air]
        return [index for index, link in enumerate(links) if link not in links[:index]]

    def doing(self) -> set[str]:
        return {requests.doing() for requests in self.requests.values()}

    def _tick(self) -> float:
        self.now += 0.001
        return self.now

    def _take(self, device: str, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Forward(peer, step, names, arrays):
                    self.air.append((peer, device, step, dict(zip(names, arrays, strict=True))))
                case Emitted(step, values):
                    self.tokens.setdefault(step.request, []).append(values["token"].tolist())
                case Compute() | Draw():
                    self._work[device] = action
                case Failed(error=error):
                    raise error
                case _:
                    raise AssertionError(f"nobody asked for {action}")

    def _compute(self, device: str, work: Compute | Draw) -> list[Array]:
        if isinstance(work, Draw):
            return [*drawn(work.logits, work.sampling, work.positions)]
        engine = self._engines[device]
        if work.resets:
            engine.reset(work.slot, work.dims)
        return engine.run(work.submodule, work.slot, work.inputs, work.dims)
