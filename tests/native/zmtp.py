"""The wire of ZMTP 3.1 (RFC 23) by hand, for an end that does what no library would."""

from __future__ import annotations

import contextlib
import socket
import struct

MORE, LONG, COMMAND = 1, 2, 4


def greeting(
    mechanism: bytes = b"NULL", *, signature: bytes = b"\xff" + bytes(8) + b"\x7f", major: int = 3
) -> bytes:
    """The first 64 bytes of a connection."""
    return signature + bytes([major, 1]) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(flags: int, body: bytes) -> bytes:
    """A frame; `flags` say nothing of its length."""
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | LONG]) + struct.pack(">Q", len(body)) + body


def command(name: bytes, data: bytes = b"") -> bytes:
    """A frame with a command."""
    return frame(COMMAND, bytes([len(name)]) + name + data)


def ready(kind: bytes = b"DEALER") -> bytes:
    """The command that ends a handshake without keys."""
    return command(b"READY", b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind)


class Peer:
    """A connection to somebody who listens."""

    def __init__(self, address: str) -> None:
        """Connect; nothing is sent yet."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.came = b""

    def send(self, data: bytes) -> None:
        """Send as much as is taken at once; the other end may have hung up."""
        self.socket.settimeout(5.0)
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def is_closed(self) -> bool:
        """Read what lies ready; whether the other end has hung up behind it."""
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(1 << 16):
                self.came += data
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def frames(self) -> list[tuple[int, bytes]]:
        """The flags and bodies of the frames behind the greeting that have come."""
        self.is_closed()
        return [(flags, body) for flags, body, _ in split(self.came[64:])]


def split(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """The whole frames at the beginning of some bytes: flags, body, and all bytes of each."""
    found, at = [], 0
    while at < len(data):
        head = 9 if data[at] & LONG else 2
        size = int.from_bytes(data[at + 1 : at + head], "big")
        if len(data) < at + head + size:
            break
        found.append((data[at], data[at + head : at + head + size], data[at : at + head + size]))
        at += head + size
    return found
