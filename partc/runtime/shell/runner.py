"""The process around a device: events of the transport go into the core, and its commands are carried out here."""

from __future__ import annotations

import gc
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from partc.errors import InternalError, PartcError, RunError
from partc.format.files import verify_files
from partc.format.role import Role, load_role
from partc.runtime.core import commands, events
from partc.runtime.core.device import Device
from partc.runtime.core.sampling import sample
from partc.runtime.core.start import Start
from partc.runtime.engines.contract import Engine, load_engine
from partc.runtime.shell.keys import load_device_keys
from partc.runtime.shell.limits import frame_limit, header_limit
from partc.runtime.shell.settings import Settings, listen_address, peer_addresses, stop_signals
from partc.runtime.shell.spin_wait import SpinWait
from partc.runtime.shell.standby import Standby
from partc.runtime.shell.transport import Event, Input, Transport


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
        self._checked = role is not None
        self._role = role = role or load_role(settings.bundle)
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
            info={"patience_s": settings.patience_s},
        )
        self._device = Device(role, start, time.monotonic())
        self._engine: Engine
        self._work: commands.Compute | commands.Draw | None = None
        self._spin_wait: SpinWait[Event] = SpinWait(self._transport.poll)
        self._standby: Standby
        self._loading = True
        self._stopping = False
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
                self._begin()
                self._load()
                while not self._stopping:
                    self._turn()
        finally:
            self._standby.end()
            self._transport.close()

    def stop(self) -> None:
        """End `serve` after what it is doing now."""
        self._stopping = True

    # -- the loop

    def _begin(self) -> None:
        if self._settings.stdio:
            self._transport.watch(sys.stdin)
            self._tell({"device": self._role.device, "listening": self.address}, "")
        else:
            self._tell({}, f"{self._role.device} listens on {self.address}")
            self._connect(self._settings.peers)

    def _load(self) -> None:
        with self._standby.away():
            if not self._checked:
                verify_files(self._settings.bundle, self._role.files)
            self._engine = load_engine(self._role, self._settings.bundle)
            # All that is loaded now stays: the collector need not look through it again in the middle of a step.
            gc.collect()
            gc.freeze()
        self._loading = False
        self._on(events.Loaded())

    def _turn(self) -> None:
        waits = self._work is None
        for event in self._events():
            self._take(event)
        if self._work is not None:
            if waits:
                self._spin_wait.end()
            self._on(self._compute())
            if isinstance(self._work, commands.Draw):
                self._on(self._compute())  # tokens follow their logits at once
            self._spin_wait.begin()
        self._perform(self._device.catch_up(time.monotonic()))

    def _look_after(self) -> None:
        """A turn of the loop while a step is computed."""
        for event in self._transport.poll(0.0):
            self._take(event)
        self._perform(self._device.catch_up(time.monotonic()))
        if self._stopping and self._loading:
            os._exit(0)  # an engine that loads cannot be interrupted, and there is nothing to lose

    def _events(self) -> Sequence[Event]:
        if self._work is not None:
            return self._transport.poll(0.0)
        if not self._device.has_requests:
            self._standby.rest()
            return self._transport.poll(self._timeout())
        return (
            self._transport.poll(self._timeout())
            if self._settings.frugal
            else self._spin_wait.wait(self._timeout())
        )

    def _timeout(self) -> float | None:
        deadline = self._device.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    # -- events into the core

    def _take(self, event: Event) -> None:
        if isinstance(event, Input):
            self._read_input(event.file)
        else:
            self._on(event)

    def _on(self, event: events.Event) -> None:
        self._perform(self._device.react(event, time.monotonic()))

    # -- commands out of it

    def _perform(self, found: Sequence[commands.Command]) -> None:
        for command in found:
            match command:
                case commands.Send(origin, message, frames):
                    self._transport.send(origin, message, frames)
                case commands.Compute() | commands.Draw():
                    self._work = command
                case commands.Announce():
                    what = "the ring is complete" if self._role.is_source else "linked"
                    self._tell({"ready": True}, f"{self._role.device}: {what}")
                case commands.Leave(error):
                    self._leave(error)
                case (
                    commands.Load() | commands.Release() | commands.Reset() | commands.ReadRows()
                    | commands.WriteRows() | commands.Connect()
                ):  # fmt: skip
                    raise InternalError(f"{command} cannot be carried out yet")
                case _:
                    assert_never(command)

    def _compute(self) -> events.Computed | events.ComputeFailed:
        work, self._work = self._work, None
        assert work is not None
        with self._standby.away():
            try:
                return self._drawn(work) if isinstance(work, commands.Draw) else self._computed(work)
            except RunError as error:
                return events.ComputeFailed(error)

    def _drawn(self, work: commands.Draw) -> events.Computed:
        began = time.monotonic()
        tokens = sample(work.logits, work.sampling, work.positions)
        return events.Computed([tokens], time.monotonic() - began)

    def _computed(self, work: commands.Compute) -> events.Computed:
        if work.resets:
            self._engine.reset(work.slot, work.dims)
        began = time.monotonic()
        made = self._engine.run(work.submodule, work.slot, work.inputs, work.dims)
        return events.Computed(made, time.monotonic() - began)

    def _leave(self, error: PartcError | None) -> None:
        if error is not None:
            raise error
        self.stop()

    def _connect(self, given: Mapping[str, str]) -> None:
        for name, address in sorted(peer_addresses(self._role, given).items()):
            self._transport.connect(name, address)

    # -- the process that started this one

    def _read_input(self, file: Any) -> None:
        if file is not sys.stdin:
            self.stop()
            return
        came = os.read(sys.stdin.fileno(), 65536)
        self._input += came
        if not came:
            self._transport.unwatch(sys.stdin)
            self.stop()
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._connect(json.loads(line)["peers"])

    def _tell(self, fields: Mapping[str, Any], text: str) -> None:
        line = json.dumps(fields) if self._settings.stdio else text
        if line:
            print(line, flush=True)
