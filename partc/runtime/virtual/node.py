"""The process of a device in virtual time: a core and an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from partc.errors import InternalError, PartcError, RunError
from partc.format.dtypes import Array
from partc.format.readings import Readings
from partc.format.role import Role
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
from partc.runtime.core.device.sampling import drawn
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Event,
    Loaded,
    RowsRead,
    SensorsRead,
    Tick,
)
from partc.runtime.core.start import Start
from partc.runtime.engines.contract import Engine
from partc.runtime.virtual.clock import Clock
from partc.runtime.virtual.network import Network

Seconds = Callable[[str, Compute | Draw], float]
"""(device, what it computes) -> how long that takes."""
Observer = Callable[[float, str, Event, Sequence[Command]], None]
"""(time, device, event, commands that followed)."""


class Node:
    """One life of a device."""

    def __init__(
        self,
        role: Role,
        engine: Engine,
        start: Start,
        clock: Clock,
        network: Network,
        seconds: Seconds,
        observe: Observer,
        load_s: float = 0.0,
    ) -> None:
        """Connect to the peers; nothing is loaded yet, and loading takes `load_s`."""
        self.name = role.device
        self.alive = True
        self.error: PartcError | None = None
        """The reason why it has left."""
        self.readings = Readings()
        """Values of its sensors."""
        self.device = Device(role, start, clock.now)
        self._engine, self._clock, self._network = engine, clock, network
        self._seconds, self._observe, self._load_s = seconds, observe, load_s
        self._computes = False
        self._armed: float | None = None
        self._stalled_until = 0.0
        for peer in sorted({*role.send, role.source} - {role.device}):
            network.connect(self, peer)

    def load(self) -> None:
        """The engine is there."""
        self.take(Loaded())

    def kill(self, late_s: float = 0.0) -> None:
        """End without a word; those to whom this device had connected notice it so much later."""
        self.alive = False
        self._network.leave(self, late_s)

    def stall(self, seconds: float) -> None:
        """Stand still, as a stopped process does: whatever happens is noticed afterwards."""
        self._stalled_until = max(self._stalled_until, self._clock.now + seconds)

    def take(self, event: Event) -> None:
        """Give an event to the core, and do what it asks for."""
        if not self.alive:
            return
        if self._clock.now < self._stalled_until:
            self._clock.at(self._stalled_until, partial(self.take, event))
            return
        now = self._clock.now
        commands = self.device.on(event, now)
        self._observe(now, self.name, event, commands)
        for command in commands:
            self._perform(command)
        self._arm()

    def _perform(self, command: Command) -> None:
        match command:
            case Send(origin, message, frames):
                self._network.send(self, origin, message, frames)
            case Compute() | Draw():
                self._compute(command)
            case ReadSensors():
                self._clock.after(0.0, partial(self.take, SensorsRead(self.readings)))
            case Announce() | Log():
                pass
            case Leave(error):
                self.error = error
                self.kill()
            case Load(epoch, names):
                self._clock.after(self._load_s, partial(self._loaded, epoch, names))
            case Release(names):
                for name in names:
                    self._engine.release(name)
            case Reset(slot, dims):
                self._engine.reset(slot, dims)
            case ReadRows(name, slot, state, row, begin, end):
                rows = self._engine.read_rows(name, slot, state, row, begin, end)
                self._clock.after(0.0, partial(self.take, RowsRead(rows)))
            case WriteRows(name, slot, state, row, begin, rows):
                self._engine.write_rows(name, slot, state, row, begin, rows)
            case Connect(peer):
                self._network.connect(self, peer)
            case _:
                assert_never(command)

    def _loaded(self, epoch: int, names: Sequence[str]) -> None:
        if self.alive:
            for name in names:
                self._engine.load(name)
            self.take(Loaded(epoch))

    def _compute(self, work: Compute | Draw) -> None:
        """Compute at once, and tell when the time for it has passed."""
        if self._computes:
            raise InternalError(f"{self.name} computes two things at once")
        self._computes = True
        seconds = self._seconds(self.name, work)
        try:
            event: Event = Computed(self._result(work), seconds)
        except RunError as error:
            event = ComputeFailed(error)
        self._clock.after(seconds, partial(self._computed, event))

    def _computed(self, event: Event) -> None:
        self._computes = False
        self.take(event)

    def _result(self, work: Compute | Draw) -> Sequence[Array]:
        if isinstance(work, Draw):
            return drawn(work.logits, work.sampling, work.positions, work.others)
        if work.resets:
            self._engine.reset(work.slot, work.dims)
        if work.others:
            slots = (work.slot, *work.others)
            return self._engine.run_shared(work.submodule, slots, work.inputs, work.dims)
        return self._engine.run(work.submodule, work.slot, work.inputs, work.dims)

    def _arm(self) -> None:
        due = self.device.deadline
        if due is not None and self.alive and (self._armed is None or due < self._armed):
            self._armed = max(due, self._clock.now)
            self._clock.at(self._armed, partial(self._ring, self._armed))

    def _ring(self, armed: float) -> None:
        """An alarm goes off; it may be an older one, or have been put off."""
        if armed != self._armed:
            return
        self._armed = None
        due = self.device.deadline
        if due is not None and self._clock.now >= due:
            self.take(Tick())
        elif self.alive:
            self._arm()
