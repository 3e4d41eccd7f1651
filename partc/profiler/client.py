"""Client of devices that measure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, assert_never

from partc.errors import RunError
from partc.format.messages import AnyMessage, Error, Join, Joined, Measure, Measured, MeasuringReply, Pong
from partc.format.role import Role, load_role
from partc.runtime.client.client import Client
from partc.runtime.client.connection import Connection
from partc.runtime.measure.ring import ring_role
from partc.runtime.shell.keys import Keys, load_client_keys

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

    def role(self, device: str) -> Role:
        """The role of one device; raises BundleError."""
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
        probe = Probe(self.role(device), self.keys, self.addresses[device])
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
                probe.join(devices, peers)
        role = ring_role(self.role(devices[0]), devices)
        end = time.monotonic() + CONNECT_S
        while True:
            try:
                return Client.reach(
                    role, self.keys, self.addresses[devices[0]], floor_s=CONNECT_S, linger_s=0.0
                )
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

    def __init__(self, role: Role, keys: Keys | None, address: str) -> None:
        """Begin to connect."""
        super().__init__(role, keys, address, CONNECT_S)
        self._answers: dict[bytes, Measured | Joined | Error] = {}

    def await_facts(self) -> Mapping[str, Any]:
        """Wait until the device answers; what it says of its machine."""
        device = self.role.device
        hint = f"start it there: partc-runner --bundle devices/{device} --listen HOST:PORT --measure"
        facts = self._await_welcome(CONNECT_S, hint).info
        if not facts.get("measures"):
            hint = "stop it, and start it again with --measure"
            raise RunError(f"the runner of {device} does not measure", where=self._address, hint=hint)
        return dict(facts)

    def measure(
        self,
        submodule: str,
        dims: Mapping[str, int],
        position: Sequence[int],
        length: Sequence[int],
        *,
        sample: str,
        repeats: int,
        touch_bytes: int,
    ) -> Measured:
        """Time a sub-module; see the message `measure`. Raises as `_ask`."""
        message = Measure(
            ticket=secrets.token_bytes(16),
            submodule=submodule,
            dims=dict(dims),
            position=tuple(position),
            length=tuple(length),
            sample=sample,
            repeats=repeats,
            touch_bytes=touch_bytes,
        )
        found = self._ask(message)
        assert isinstance(found, Measured), found
        return found

    def join(self, ring: Sequence[str], peers: Mapping[str, str]) -> None:
        """Let the device be one of a ring of one or two; raises as `_ask`."""
        self._ask(Join(ticket=secrets.token_bytes(16), ring=tuple(ring), peers=dict(peers)))

    def _ask(self, message: Measure | Join) -> Measured | Joined:
        """Send a request and wait for its answer.

        Raises:
            RunError: the device refuses it, or is gone.
        """
        self.tell(message)
        end = time.monotonic() + ANSWER_S
        while message.ticket not in self._answers:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() >= end:
                text = f"no answer within {ANSWER_S:.0f} s"
                raise RunError(text, where=self.role.device, hint=self.gone_hint, cause="stalled")
            self._pump(end - time.monotonic())
        found = self._answers.pop(message.ticket)
        if isinstance(found, Error):
            raise found.problem.error()
        return found

    def _take(self, message: AnyMessage, frames: Sequence[memoryview]) -> None:
        if not isinstance(message, MeasuringReply):
            return
        match message:
            case Measured() | Joined() | Error():
                self._answers[message.ticket] = message
            case Pong():
                pass
            case _:
                assert_never(message)
