"""The start of a runner: its options, and the way to ask it to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from partc.runtime.core.liveness import LEAST_PATIENCE_S, LINGER_S, REJOIN_S
from partc.runtime.shell.log import LogSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a runner."""

    bundle: Path
    """The folder of one device."""
    listen: str | None = None
    """HOST:PORT; None takes the address in placement.json."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """HOST:PORT of other devices, over those in placement.json."""
    advertise: str | None = None
    """HOST, or HOST:PORT, at which the others reach this device; None: where it listens."""
    insecure: bool = False
    """Neither encrypt nor authenticate; loopback addresses only."""
    patience_s: float = LEAST_PATIENCE_S
    """The shortest time without progress after which a peer counts as gone."""
    rejoin_s: float = REJOIN_S
    """The time that requests wait for a device that is lost."""
    linger_s: float = LINGER_S
    """The time that a request goes on whose client is gone."""
    stdio: bool = False
    """Take the peers from standard input, tell progress on standard output as JSON, end with the input."""
    log: LogSettings = field(default_factory=LogSettings)
    """The log, on standard error."""


@contextlib.contextmanager
def stop_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable at SIGTERM or SIGINT.

    An exception out of a signal handler may strike, and vanish, in a destructor or in C code that drops it; a byte in a
    socket does not. Before this a signal ends the process at once (`partc.interrupts`): there is nothing to clean up.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        # First the socket: a signal that came between the two steps the other way round would leave no trace.
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, _nothing) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The byte in the socket is enough."""
