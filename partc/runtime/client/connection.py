"""A client's connection to one device: to the source of a ring, or to a device that measures.

What both share: greeting, messages, and what is said of a device that is silent, gone, or takes no such key. Events
are handled only while somebody waits; there is no thread.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from partc.errors import PartcError, RunError
from partc.format.codec import encode
from partc.format.messages import AnyMessage, Message, Refuse, Welcome
from partc.format.role import Role
from partc.runtime.client.greeting import client_hello
from partc.runtime.core.events import Connected, Disconnected, Received, Rejected, Unreadable
from partc.runtime.shell.keys import Keys
from partc.runtime.shell.limits import client_frame_limit, header_limit
from partc.runtime.shell.transport import Event, Transport


class Connection(ABC):
    """A connection to one device, which it greets. Not for use by several threads."""

    gone_hint: ClassVar[str]
    """A hint for when the device hung up."""
    key_hint: ClassVar[str]
    """A hint for when it does not take the key."""

    def __init__(self, role: Role, keys: Keys | None, address: str, floor_s: float) -> None:
        """Begin to connect to the device of `role` at `address` (HOST:PORT); without keys, not encrypted.

        Raises:
            RunError: there is no such address.
        """
        self.role = role
        """The device's."""
        self._address = address
        self._has_key = keys is not None
        self._events: deque[Event] = deque()
        self._welcome: Welcome | None = None
        self._failure: PartcError | None = None
        self._heard = time.monotonic()
        self._transport = Transport(keys, client_frame_limit(role), floor_s, client_frame_limit(role))
        try:
            self._transport.connect(role.device, address)
        except BaseException:
            self._transport.close()  # `close` of a subclass is for one that has begun
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def away_s(self) -> float | None:
        """Seconds since the device was last heard, where the connection is broken; None: it stands."""
        return None if self._welcome is not None else time.monotonic() - self._heard

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def tell(self, message: Message, frames: Sequence[memoryview] = ()) -> None:
        """Send a message to the device.

        Raises:
            RunError: it is larger than the device takes.
        """
        size, most = len(encode(message)), header_limit(self.role)
        if size > most:
            text = f"the request has {size} bytes without its tensors, at most {most} are allowed"
            where = type(message).__name__.lower()
            raise RunError(text, where=where, hint="send shorter prompts, and fewer stop tokens")
        self._transport.send(self.role.device, message, frames)

    def wake_on(self, file: Any) -> None:
        """Let whoever listens return when a file (an object with `fileno`) is readable: another thread may wake it."""
        self._transport.watch(file)

    @abstractmethod
    def _take(self, message: AnyMessage, frames: Sequence[memoryview]) -> None:
        """Handle a message that is about more than the connection."""

    def _fail(self, error: PartcError) -> None:
        """The connection is of no more use."""
        self._failure = error

    def _await_welcome(self, patience_s: float, hint: str) -> Welcome:
        """Wait until the device answers at all; `hint` is for when it does not within `patience_s` seconds."""
        end = time.monotonic() + patience_s
        while self._welcome is None:
            if self._failure is not None:
                raise self._failure
            left = end - time.monotonic()
            if left <= 0:
                message = f"{self.role.device} does not answer"
                raise RunError(message, where=self._address, hint=hint, cause="lost-peer")
            self._pump(left)
        return self._welcome

    def _pump(self, timeout_s: float) -> None:
        # What is left here is what a callback kept from being handled, by an exception.
        self._events.extend(self._transport.poll(0.0 if self._events else timeout_s))
        while self._events:
            self._handle(self._events.popleft())

    def _handle(self, event: Event) -> None:
        match event:
            case Connected():
                self.tell(client_hello(self.role))
            case Received():
                self._heard = time.monotonic()
                self._message(event)
            case Unreadable(error=error):
                self._fail(error)
            case Disconnected() if self._welcome is not None:
                self._broke()
            case Rejected():
                self._fail(self._rejection())
            case _:
                pass

    def _rejection(self) -> RunError:
        """About a device that ended the handshake."""
        if self._has_key:
            message, hint = f"{self.role.device} does not take this client's key", self.key_hint
        else:
            message, hint = f"{self.role.device} takes no client without a key", "leave --insecure out"
        return RunError(message, where="keys", hint=hint, cause="refused")

    def _broke(self) -> None:
        """The connection is closed, which was welcomed."""
        message = f"{self.role.device} closed its connection"
        self._fail(RunError(message, where=self.role.device, hint=self.gone_hint, cause="lost-peer"))

    def _welcomed(self, welcome: Welcome) -> None:
        """The device takes what it is told from now on; again after every break."""
        self._welcome = welcome

    def _message(self, event: Received) -> None:
        match event.message:
            case Welcome() as welcome:
                self._welcomed(welcome)
            case Refuse(problem=problem):
                self._fail(problem.error())
            case message:
                self._take(message, event.frames)
