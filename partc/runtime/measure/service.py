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
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from partc.errors import PartcError, RunError
from partc.format.files import verify_files
from partc.format.role import Role, load_role
from partc.runtime.links import Control, Failed, LinkEvent, Links
from partc.runtime.measure.bench import Bench
from partc.runtime.measure.machine import machine_facts
from partc.runtime.measure.ring import RingRunner, ring_role
from partc.runtime.shell.keys import CLIENT, load_device_keys
from partc.runtime.shell.settings import Settings, listen_address, stop_signals
from partc.runtime.shell.transport import Input, Transport
from partc.runtime.source import problem
from partc.runtime.wire import frame_limit


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
            print(f"{self._role.device}: {error}", file=sys.stderr, flush=True)
            return
        self._stopping = runner.interrupted

    def _serve_client(self) -> _Join | None:
        """The ring that a client asks this device to join; None: it shall stop."""
        transport = Transport(self._keys, frame_limit(self._role), self._settings.patience_s)
        try:
            self._address = transport.listen(self._address)
            links = Links(self._role, transport, machine_facts())
            with stop_signals() as signalled:
                transport.watch(signalled)
                self._begin(transport)
                while not self._stopping:
                    for event in transport.poll(links.tick(time.monotonic())):
                        for found in links.handle(event, time.monotonic()):
                            if (join := self._handle(found, links)) is not None:
                                return join
            return None
        finally:
            transport.close()

    def _begin(self, transport: Transport) -> None:
        if self._settings.stdio:
            transport.watch(sys.stdin)
        if not self._told:
            self._told = True
            line = json.dumps({"device": self._role.device, "listening": self._address})
            text = f"{self._role.device} listens on {self._address}, to be measured"
            print(line if self._settings.stdio else text, flush=True)

    def _handle(self, event: LinkEvent, links: Links) -> _Join | None:
        match event:
            case Input(file) if file is sys.stdin:
                self._stopping = not self._read_input()
            case Input():
                self._stopping = True
            case Failed(error):
                print(f"{self._role.device}: {error}", file=sys.stderr, flush=True)
            case Control(peer=peer) if peer == CLIENT:
                return self._from_client(event, links)
        return None

    def _from_client(self, event: Control, links: Links) -> _Join | None:
        fields = event.fields
        try:
            match fields["kind"]:
                case "measure":
                    links.control(
                        event.origin, "measured", request=fields["request"], **self._bench.measure(fields)
                    )
                case "join":
                    role = ring_role(self._role, fields["ring"])
                    peers = {name: fields["peers"].get(name, "") for name in role.send}
                    links.control(event.origin, "joined", request=fields["request"])
                    return _Join(role, peers)
                case "ping":
                    links.control(event.origin, "pong", token=fields["token"], doing="measures")
                case "shutdown":
                    self._stopping = True
                case _:
                    pass
        except (PartcError, MemoryError) as raised:
            error = raised if isinstance(raised, PartcError) else RunError("there is not enough memory")
            error.where = error.where or self._role.device
            links.control(event.origin, "error", (), request=fields["request"], **problem(error))
        return None

    def _read_input(self) -> bool:
        """Whether whoever started us is still there; its one line tells addresses that only rings need."""
        came = os.read(sys.stdin.fileno(), 65536)
        if came.endswith(b"\n"):
            print(json.dumps({"ready": True}), flush=True)
        return bool(came)
