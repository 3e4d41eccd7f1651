"""The process around a device: events of the transport go into the core, and its commands are carried out here."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, assert_never

from partc.errors import PartcError, RunError
from partc.format.contingencies import load_contingencies
from partc.format.role import Role, load_role
from partc.runtime.core import commands, events
from partc.runtime.core.device.device import Device
from partc.runtime.core.start import Start
from partc.runtime.shell.addresses import address_towards, first_peers, known_addresses, listen_address
from partc.runtime.shell.keys import load_device_keys
from partc.runtime.shell.limits import frame_limit, header_limit
from partc.runtime.shell.loader import Loader
from partc.runtime.shell.log import LogWriter
from partc.runtime.shell.sensors import Sensors
from partc.runtime.shell.settings import Settings, stop_signals
from partc.runtime.shell.standby import Standby
from partc.runtime.shell.strangers import Strangers
from partc.runtime.shell.transport import Event, Input, Transport
from partc.runtime.shell.work import Work


class Runner:
    """One device of a ring."""

    def __init__(self, settings: Settings, role: Role | None = None) -> None:
        """Read the bundle and take the address; nothing is loaded yet.

        Args:
            settings: how it is started.
            role: stands instead of the bundle's, whose files were checked already.

        Raises:
            BundleError: the bundle or its keys are not what they should be.
            RunError: the address cannot be had.
        """
        self._settings = settings
        is_checked = role is not None
        self._role = role = role or load_role(settings.bundle)
        self._log = LogWriter(role.device, settings.log)
        keys = None if settings.insecure else load_device_keys(settings.bundle)
        self._transport = Transport(keys, frame_limit(role), settings.patience_s, header_limit(role))
        try:
            self.address = self._transport.listen(listen_address(role, settings))
        except BaseException:
            self._transport.close()
            raise
        start = Start(
            incarnation=secrets.randbits(64),
            first_request=time.time_ns() // 1_000_000,
            patience_s=settings.patience_s,
            rejoin_s=settings.rejoin_s,
            linger_s=settings.linger_s,
            contingencies=() if is_checked else tuple(load_contingencies(role, settings.bundle).values()),
            info={"patience_s": settings.patience_s},
        )
        self._device = Device(role, start, time.monotonic())
        self._loader = Loader(role, settings.bundle, is_checked=is_checked)
        self._work = Work(self._loader)
        self._known: Mapping[str, str] = {}
        """HOST:PORT of other devices, as it was given at start."""
        self._sought: set[str] = set()
        """Devices whose address is not known."""
        self._standby: Standby
        self._strangers = Strangers()
        self._stopping = False
        self._sensing = False
        """Whether the sensors are to be read."""
        self._input = b""

    def serve(self) -> None:
        """Load the sub-modules, and work until asked to stop.

        That is by `stop`, by the client, by SIGTERM or SIGINT, or by the end of the input.

        Raises:
            BundleError: a file is damaged, or the engine cannot read it.
            RunError: this device cannot be part of the ring.
        """
        self._standby = Standby(self._look_after)
        try:
            with stop_signals() as signalled:
                self._transport.watch(signalled)
                self._transport.watch(self._loader.told)
                self._begin()
                self._loader.begin()
                while not self._stopping:
                    self._turn()
        finally:
            self._standby.end()
            self._transport.close()
            if self._stopping and self._loader.is_busy:
                os._exit(0)  # an engine that loads cannot be interrupted, and there is nothing to lose
            self._loader.end()

    def stop(self) -> None:
        """End `serve` after what it is doing now."""
        self._stopping = True

    def _stop_for(self, reason: str) -> None:
        self._log.write("stopping", {"reason": reason})
        self.stop()

    # -- the loop

    def _begin(self) -> None:
        self._log.write("listening", {"address": self.address})
        if self._settings.stdio:
            self._transport.watch(sys.stdin)
            self._tell({"device": self._role.device, "listening": self.address}, "")
        else:
            self._tell({}, f"{self._role.device} listens on {self.address}")
            self._meet(self._settings.peers)

    def _turn(self) -> None:
        for event in self._events():
            self._take(event)
        if self._work:
            self._do_work()
        self._catch_up()

    def _do_work(self) -> None:
        """One sub-module at most, and what follows it at once: tokens are drawn, and rows are read and written."""
        while True:
            with self._standby.away():
                answer = self._work.do_next()
            if answer is not None:
                self._on(answer)
            if not self._work or self._work.computes_next:
                return

    def _look_after(self) -> None:
        """A turn of the loop while a step is computed."""
        for event in self._transport.poll(0.0):
            self._take(event)
        self._catch_up()

    def _catch_up(self) -> None:
        """Do what nobody waits for: the next step is on its way, or under computation."""
        self._perform(self._device.catch_up(time.monotonic()))
        if self._sensing:
            self._sensing = False
            self._on(events.SensorsRead(self._sensors.read()))
            self._perform(self._device.catch_up(time.monotonic()))
        if new := self._strangers.to_tell(self._transport.strangers, time.monotonic()):
            self._log.write("strangers", {"connections": new})

    def _events(self) -> Sequence[Event]:
        if self._work:
            return self._transport.poll(0.0)
        if not self._device.has_requests:
            self._standby.rest()
        return self._transport.poll(self._timeout())

    def _timeout(self) -> float | None:
        now, deadline = time.monotonic(), self._device.deadline
        waits = (
            None if deadline is None else max(0.0, deadline - now),
            self._strangers.due_s(self._transport.strangers, now),
        )
        return min((each for each in waits if each is not None), default=None)

    # -- events into the core

    def _take(self, event: Event) -> None:
        match event:
            case Input(file) if file is self._loader.told:
                for result in self._loader.results():
                    self._on(result)
            case Input(file):
                self._read_input(file)
            case events.Connected(peer):
                towards = self._transport.address_of(peer)
                address = address_towards(towards, self.address, self._settings.advertise)
                self._on(events.Connected(peer, address))
            case _:
                self._on(event)

    def _on(self, event: events.Event) -> None:
        self._perform(self._device.react(event, time.monotonic()))

    # -- commands out of it

    def _perform(self, found: Sequence[commands.Command]) -> None:
        for command in found:
            match command:
                case commands.Send(origin, message, frames):
                    self._transport.send(origin, message, frames)
                case commands.ReadSensors():
                    self._sensing = True
                case commands.Announce():
                    what = "the ring is complete" if self._role.is_source else "linked"
                    self._log.write("complete" if self._role.is_source else "linked", {})
                    self._tell({"ready": True}, f"{self._role.device}: {what}")
                case commands.Log(event, fields):
                    self._log.write(event, fields)
                case commands.Leave(error):
                    self._leave(error)
                case commands.Connect(peer, address):
                    self._reach(peer, address)
                case (
                    commands.Compute() | commands.Draw() | commands.Load() | commands.Release() | commands.Reset()
                    | commands.ReadRows() | commands.WriteRows()
                ):  # fmt: skip
                    self._work.add(command)
                case _:
                    assert_never(command)

    def _leave(self, error: PartcError | None) -> None:
        if error is not None:
            raise error
        self._stop_for("it was told to")

    @cached_property
    def _sensors(self) -> Sensors:
        """Found when somebody watches for the first time."""
        return Sensors()

    # -- connections to other devices

    def _meet(self, given: Mapping[str, str]) -> None:
        """Connect to those that this device needs at once, and to those that were sought."""
        self._known = known_addresses(self._role, given)
        for name in sorted({*first_peers(self._role), *self._sought & self._known.keys()}):
            self._transport.connect(name, self._known[name])
        self._sought -= self._known.keys()

    def _reach(self, peer: str, address: str) -> None:
        """Connect to a device that the source names; without an address, as soon as it is known."""
        found = address or self._known.get(peer)
        if found is None:
            self._sought.add(peer)
            self._log.write("address-unknown", {"peer": peer})
            return
        try:
            self._transport.connect(peer, found)
        except RunError as error:  # of an address that came in a message, which must end no runner
            self._log.write("address-refused", {"peer": peer, "reason": str(error)})

    # -- the process that started this one

    def _read_input(self, file: Any) -> None:
        if file is not sys.stdin:
            self._stop_for("a signal came")
            return
        came = os.read(sys.stdin.fileno(), 65536)
        self._input += came
        if not came:
            self._transport.unwatch(sys.stdin)
            self._stop_for("its input has ended")
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._meet(json.loads(line)["peers"])

    def _tell(self, fields: Mapping[str, Any], text: str) -> None:
        line = json.dumps(fields) if self._settings.stdio else text
        if line:
            print(line, flush=True)
