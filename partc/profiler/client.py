"""The client of devices that measure: asks, waits, and turns what goes wrong into words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from partc.errors import RunError
from partc.format.role import Role, load_role
from partc.runtime.client.client import Client
from partc.runtime.client.connection import Connection
from partc.runtime.measure.ring import ring_role
from partc.runtime.shell.keys import Keys, load_client_keys
from partc.runtime.wire import Fields

CONNECT_S = 10.0
"""Seconds in which a device has to answer at all."""
ANSWER_S = 600.0
"""Seconds that one request may take, loading included."""
BUSY = 0.3
"""The part of the time in which a process waits for a core, from which on a device counts as busy."""
_RETRY_S = 0.05


@dataclass(frozen=True)
class Fleet:
    """The devices of a profile, and how to reach them."""

    folder: Path
    addresses: Mapping[str, str]
    insecure: bool = False
    facts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Device → the facts about its machine, once they were requested."""

    def is_busy(self, device: str) -> bool:
        """Whether other programs take the cores of a device that was asked already."""
        return float(self.facts.get(device, {}).get("pressure", 0.0)) > BUSY

    def manifest(self, device: str) -> Role:
        """The manifest of one device's bundle; raises BundleError."""
        return load_role(self.folder / "devices" / device)

    @property
    def keys(self) -> Keys | None:
        """The client's."""
        return None if self.insecure else load_client_keys(self.folder)

    def probe(self, device: str) -> Probe:
        """A connection to one device that waits to be asked.

        Raises:
            RunError: it does not answer, does not measure, or has another bundle.
        """
        probe = Probe(self.manifest(device), self.keys, self.addresses[device])
        try:
            self.facts[device] = probe.await_facts()
        except BaseException:
            probe.close()
            raise
        return probe

    def ring(self, devices: Sequence[str]) -> Client:
        """A client of a ring of one or two devices, which measure again when it is closed by `end_ring`.

        Raises:
            RunError: a device does not answer, or the ring does not come to stand.
        """
        # The last first: the source is complete when all others have joined.
        for device in reversed(devices):
            with self.probe(device) as probe:
                peers = {name: self.addresses[name] for name in devices if name != device}
                probe.ask("join", "joined", ring=list(devices), peers=peers)
        manifest = ring_role(self.manifest(devices[0]), devices)
        end = time.monotonic() + CONNECT_S
        while True:
            try:
                return Client.reach(manifest, self.keys, self.addresses[devices[0]], floor_s=CONNECT_S)
            except RunError:
                # Until it has changed over it refuses whoever means the ring.
                if time.monotonic() >= end:
                    raise
                time.sleep(_RETRY_S)


def end_ring(client: Client) -> None:
    """Let the devices of a ring measure again."""
    client.shutdown()
    client.close()


class Probe(Connection):
    """A connection to one device that measures. Not for use by several threads."""

    gone_hint: ClassVar[str] = "see what its runner says, start it again with --measure, and profile again"
    key_hint: ClassVar[str] = "copy this profile's folder of the device to it again, keys included"

    def __init__(self, manifest: Role, keys: Keys | None, address: str) -> None:
        """Begin to connect."""
        super().__init__(manifest, keys, address, CONNECT_S)
        self._tickets = 0
        self._answers: dict[int, Fields] = {}

    def await_facts(self) -> Mapping[str, Any]:
        """Wait until the device answers; what it says of its machine."""
        device = self.manifest.device
        hint = f"start it there: partc-runner --bundle devices/{device} --listen HOST:PORT --measure"
        facts = self._await_welcome(CONNECT_S, hint)["info"]
        if not facts.get("measures"):
            hint = "stop it, and start it again with --measure"
            raise RunError(f"the runner of {device} does not measure", where=self._address, hint=hint)
        return dict(facts)

    def ask(self, kind: str, answer: str, **fields: Any) -> Fields:
        """Send a request and wait for its answer.

        Raises:
            RunError: the device refuses it, or is gone.
        """
        self._tickets += 1
        self.tell(kind, request=self._tickets, **fields)
        end = time.monotonic() + ANSWER_S
        while self._tickets not in self._answers:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() >= end:
                message = f"no answer within {ANSWER_S:.0f} s"
                raise RunError(message, where=self.manifest.device, hint=self.gone_hint)
            self._pump(end - time.monotonic())
        found = self._answers.pop(self._tickets)
        if found["kind"] != answer:
            raise RunError(found["message"], where=found["where"], hint=found["hint"])
        return found

    def _take(self, fields: Fields, frames: list[memoryview]) -> None:
        match fields["kind"]:
            case "measured" | "joined" | "error" if fields["request"] is not None:
                self._answers[fields["request"]] = fields
            case _:
                pass
