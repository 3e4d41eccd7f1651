"""The start of a runner: its addresses, its peers, and the way to ask it to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from partc.errors import RunError
from partc.format.role import Role
from partc.runtime.core.liveness import LEAST_PATIENCE_S


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a runner."""

    bundle: Path
    """The folder of one device."""
    listen: str | None = None
    """HOST:PORT; None takes the address in placement.json."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """HOST:PORT of other devices, over those in placement.json."""
    insecure: bool = False
    """Neither encrypt nor authenticate; loopback addresses only."""
    patience_s: float = LEAST_PATIENCE_S
    """The shortest time without progress after which a peer counts as gone."""
    frugal: bool = False
    """Sleep through every wait (`spin_wait.py`)."""
    stdio: bool = False
    """Take the peers from standard input, tell progress on standard output as JSON, end with the input."""


@contextlib.contextmanager
def stop_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable at SIGTERM or SIGINT.

    An exception out of a signal handler may strike, and vanish, in a destructor; a byte in a socket does not.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = {number: signal.signal(number, _nothing) for number in (signal.SIGTERM, signal.SIGINT)}
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The byte in the socket is enough."""


def listen_address(role: Role, settings: Settings) -> str:
    """Where this device binds.

    Raises:
        RunError: neither the options nor the placement say where.
    """
    address = settings.listen or role.addresses.get(role.device)
    if address:
        return address
    if settings.stdio:
        return "127.0.0.1:0"
    hint = "--listen HOST:PORT, or `address` in devices.yaml"
    raise RunError("where shall this device listen?", where=role.device, hint=hint)


def peer_addresses(role: Role, given: Mapping[str, str]) -> dict[str, str]:
    """Where those are that this device connects to: its consumers, and the source.

    Raises:
        RunError: an address is missing, or is one of a device that is not in the ring.
    """
    needed = set(role.send) | ({role.source} - {role.device})
    unknown = sorted(set(given) - set(role.ring))
    if unknown:
        raise RunError(f"{unknown[0]!r} is not in the ring", where="--peer", hint=f"{', '.join(role.ring)}")
    known = {**role.addresses, **given}
    for name in sorted(needed):
        if not known.get(name):
            hint = f"--peer {name}=HOST:PORT, or `address` in devices.yaml"
            raise RunError(f"the address of {name} is not known", where=role.device, hint=hint)
    return {name: str(known[name]) for name in needed}
