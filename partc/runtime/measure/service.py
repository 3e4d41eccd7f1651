"""`partc-runner --measure`: a device that times what its bundle holds, for `partc profile`.

The bundle is an ordinary one, in which every device is a source, so that the client of the build may talk to
each of them: same keys, same handshake, same engines. Two requests are understood (docs/wire.md):

| message | asks for |
| --- | --- |
| `measure` | a sub-module timed under given sizes, alone, as often as wanted (EdgeShard III; `bench.py`) |
| `join` | to be one of a ring of one or two devices, for the cost of hops (`ring.py`) |
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from partc.errors import PartcError, RunError
from partc.format.files import verify_files
from partc.format.message_parts import Problem
from partc.format.messages import CLIENT, Error, Join, Joined, Measure, MeasuringRequest, Ping, Pong, Shutdown
from partc.format.role import Role, load_role
from partc.printable import printable
from partc.runtime.core import commands, events
from partc.runtime.core.actions import Action, Failed, Heard
from partc.runtime.core.links.links import Links
from partc.runtime.measure.bench import Bench
from partc.runtime.measure.machine import machine_facts
from partc.runtime.measure.ring import RingRunner, ring_role
from partc.runtime.shell.addresses import listen_address
from partc.runtime.shell.keys import load_device_keys
from partc.runtime.shell.limits import frame_limit, header_limit
from partc.runtime.shell.settings import Settings, stop_signals
from partc.runtime.shell.transport import Event, Input, Transport


@dataclass(slots=True)
class _Join:
    """A ring that this device shall be part of."""

    role: Role
    addresses: Mapping[str, str]


class MeasureService:
    """One device that measures."""

    def __init__(self, settings: Settings) -> None:
        """Check the bundle; raises as `Runner`."""
        self._settings = settings
        self._role = load_role(settings.bundle)
        self._keys = None if settings.insecure else load_device_keys(settings.bundle)
        verify_files(settings.bundle, self._role.files)
        self._bench = Bench(self._role, settings.bundle)
        self._address = listen_address(self._role, settings)
        self._stopping = False
        self._told = False

    def serve(self) -> None:
        """Answer clients until asked to stop; raises as `Runner.serve`."""
        while not self._stopping:
            join = self._serve_client()
            if join is not None:
                self._serve_ring(join)

    def _serve_ring(self, join: _Join) -> None:
        settings = replace(self._settings, listen=self._address, stdio=False)
        try:
            runner = RingRunner(settings, join.role, join.addresses)
            runner.serve()
        except PartcError as error:
            print(printable(f"{self._role.device}: {error}"), file=sys.stderr, flush=True)
            return
        self._stopping = runner.interrupted

    def _serve_client(self) -> _Join | None:
        """The ring that a client asks this device to join; None: it shall stop."""
        role = self._role
        transport = Transport(self._keys, frame_limit(role), self._settings.patience_s, header_limit(role))
        try:
            self._address = transport.listen(self._address)
            links = Links(role, secrets.randbits(64), machine_facts(), measures=True)
            with stop_signals() as signalled:
                transport.watch(signalled)
                self._begin(transport)
                while not self._stopping:
                    for event in transport.poll(None):
                        for action in self._actions(event, links):
                            if (join := self._handle(action, transport)) is not None:
                                return join
            return None
        finally:
            transport.close()

    def _actions(self, event: Event, links: Links) -> Iterable[Action]:
        """Pass an event to the links, which are those of a ring: only clients use them here."""
        match event:
            case Input(file):
                self._stopping = file is not sys.stdin or not self._read_input()
                return ()
            case events.Received():
                return links.received(event, time.monotonic())
            case events.Unreadable():
                return links.unreadable(event)
            case events.Disconnected(origin):
                return links.disconnected(origin)
            case events.Connected() | events.Rejected():
                return ()
            case _:
                assert_never(event)

    def _begin(self, transport: Transport) -> None:
        if self._settings.stdio:
            transport.watch(sys.stdin)
        if not self._told:
            self._told = True
            line = json.dumps({"device": self._role.device, "listening": self._address})
            text = f"{self._role.device} listens on {self._address}, to be measured"
            print(line if self._settings.stdio else text, flush=True)

    def _handle(self, action: Action, transport: Transport) -> _Join | None:
        match action:
            case commands.Send(origin, message, frames):
                transport.send(origin, message, frames)
            case Failed(error=error):
                print(printable(f"{self._role.device}: {error}"), file=sys.stderr, flush=True)
            case Heard(peer=peer) if peer == CLIENT:
                return self._from_client(action, transport)
            case _:
                pass
        return None

    def _from_client(self, heard: Heard, transport: Transport) -> _Join | None:
        message = heard.message
        if not isinstance(message, MeasuringRequest):
            return None
        match message:
            case Measure() | Join() as asked:
                return self._answer(asked, heard.origin, transport)
            case Ping(token=token):
                transport.send(heard.origin, Pong(token=token, computing=False, doing="measures"))
            case Shutdown():
                self._stopping = True
            case _:
                assert_never(message)
        return None

    def _answer(self, asked: Measure | Join, origin: events.Origin, transport: Transport) -> _Join | None:
        try:
            if isinstance(asked, Measure):
                transport.send(origin, self._bench.measure(asked))
                return None
            role = ring_role(self._role, asked.ring)
            transport.send(origin, Joined(ticket=asked.ticket))
            return _Join(role, {name: asked.peers.get(name, "") for name in role.send})
        except (PartcError, MemoryError) as raised:
            error = raised if isinstance(raised, PartcError) else RunError("there is not enough memory")
            error.where = error.where or self._role.device
            transport.send(origin, Error(ticket=asked.ticket, problem=Problem.of(error)))
        return None

    def _read_input(self) -> bool:
        """Whether whoever started us is still there; its one line tells addresses that only rings need."""
        came = os.read(sys.stdin.fileno(), 65536)
        if came.endswith(b"\n"):
            print(json.dumps({"ready": True}), flush=True)
        return bool(came)
