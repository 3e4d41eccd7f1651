"""A link that goes wrong when it is told to: a TCP forwarder on this machine, for the address that devices advertise.

It stands in for network namespaces with tbf and nftables where a test has no right to make them. Bytes are held back,
never lost, as TCP has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_PIECE_BYTES = 16384


@dataclass(slots=True)
class Direction:
    """One direction of a link."""

    rate: float | None = None
    """Bytes per second; None: as fast as it goes."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_on(self, size: int) -> None:
        """Wait as long as so many bytes take."""
        await self.is_open.wait()
        if self.rate is not None:
            await asyncio.sleep(size / self.rate)


class Forwarder:
    """Takes connections at `address` and passes them on to `target` (HOST:PORT), in a thread of its own."""

    def __init__(self, target: str) -> None:
        """Begins; as a context manager it ends."""
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._there, self._back = Direction(), Direction()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="forwarder", daemon=True)
        self._thread.start()
        ready.wait()
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self, *, there: bool = False, back: bool = False) -> None:
        """Hold what goes to the target, or what comes from it, until `mend`."""
        self._loop.call_soon_threadsafe(self._cut, there, back)

    def slow(self, rate: float) -> None:
        """Pass no more than so many bytes per second, each way."""
        self._loop.call_soon_threadsafe(self._set_rate, rate)

    def mend(self) -> None:
        """As good as new; nothing where all is over, since timers may come to it later."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cut, False, False)
            self._loop.call_soon_threadsafe(self._set_rate, None)

    def hang_up(self) -> None:
        """Close all connections; new ones are taken."""
        self._loop.call_soon_threadsafe(self._hang_up)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._cut(False, False)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._take, "127.0.0.1", 0))
        ready.set()
        self._loop.run_forever()
        self._server.close()
        self._hang_up()
        self._loop.run_until_complete(asyncio.gather(*self._links, return_exceptions=True))
        self._loop.close()

    def _cut(self, there: bool, back: bool) -> None:
        for direction, is_cut in ((self._there, there), (self._back, back)):
            direction.is_open.clear() if is_cut else direction.is_open.set()

    def _set_rate(self, rate: float | None) -> None:
        self._there.rate = self._back.rate = rate

    def _hang_up(self) -> None:
        for link in self._links:
            link.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            host, _, port = self._target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(far_writer):
                ways = (
                    asyncio.ensure_future(_pump(reader, far_writer, self._there)),
                    asyncio.ensure_future(_pump(far_reader, writer, self._back)),
                )
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
        except (OSError, asyncio.CancelledError):
            return  # nobody listens there now, as behind a real link
        finally:
            writer.close()
            self._links.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            await direction.pass_on(len(data))
            writer.write(data)
            await writer.drain()
