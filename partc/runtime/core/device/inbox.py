"""Messages to a device that are neither values nor about links, taken to the part that they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from partc.errors import RunError
from partc.format import messages
from partc.runtime.core.actions import Action, Broadcast, Frame, Heard
from partc.runtime.core.commands import Leave, Send
from partc.runtime.core.device.parts import Parts
from partc.runtime.core.device.reports import timings


class Inbox:
    """The messages of one device."""

    def __init__(self, parts: Parts) -> None:
        """They are for these parts."""
        self._parts = parts

    def take(self, heard: Heard, now: float) -> Iterable[Action]:
        """Take a message that its sender may send (`rights`)."""
        source = self._parts.source
        match heard.message:
            case messages.Ping(token=token):
                return [Send(heard.origin, self._parts.pong(token))]
            case messages.Close() as close:
                return self._closed(close)
            case messages.Shutdown():
                told = [Broadcast(messages.Shutdown())] if heard.peer == messages.CLIENT else []
                return [*told, Leave()]
            case messages.Addresses(addresses=addresses):
                return self._parts.links.moved(addresses)
            case messages.Prepare() | messages.Commit() | messages.Abort() as order:
                return self._from_source(order, heard, now)
            case messages.Sense() as sense:
                return self._parts.monitor.sense(sense)
            case (
                messages.Submit() | messages.Cancel() | messages.Place() | messages.Resume() | messages.Watch()
            ) as asked:  # fmt: skip
                return () if source is None else source.asked(heard, asked, now)
            case (
                messages.Ready() | messages.Unready() | messages.Fail() | messages.Timings() | messages.Crossed()
                | messages.Pong() | messages.Prepared() | messages.Sensed()
            ) as report:  # fmt: skip
                return () if source is None else source.told(heard, report, now)
            case messages.Want() as want:
                return self._wanted(heard, want)
            case messages.Rows() as rows:
                return self._rows(heard, rows, now)
            case messages.Hello() | messages.Welcome() | messages.Refuse() | messages.Data() | messages.Ack():
                return ()  # the links have them
            case (
                messages.Token() | messages.Stats() | messages.Trace() | messages.Result() | messages.Error()
                | messages.Placed() | messages.Status()
            ):  # fmt: skip
                return ()  # for clients
            case messages.Measure() | messages.Measured() | messages.Join() | messages.Joined():
                return ()  # for devices that measure
            case unknown:
                assert_never(unknown)

    def tell(
        self, device: str, message: messages.Message, frames: Sequence[Frame], now: float
    ) -> Iterable[Action]:
        """Take a message to a device, which may be this one."""
        role = self._parts.role
        if device != role.device:
            # A device and its source talk over the connection that the device opened.
            way = device if device == role.source else self._parts.links.devices.get(device)
            return () if way is None else [Send(way, message, frames)]
        here = Heard(device, device, message, [memoryview(frame) for frame in frames])  # type: ignore[arg-type]
        return self.take(here, now)

    # -- inner workings

    def _wanted(self, heard: Heard, want: messages.Want) -> Iterable[Action]:
        """Answer a question for rows, if the change that is prepared gives its sender that sub-module."""
        parts = self._parts
        if parts.preparation.gives(heard.peer, want):
            return parts.transfer.offers.wanted(heard.peer, heard.origin, want)
        is_here = parts.requests.request(want.request) is not None and want.submodule in parts.role.running
        if is_here and parts.preparation.may_follow(want.epoch):
            parts.early.keep(heard, want)
        return ()

    def _rows(self, heard: Heard, rows: messages.Rows, now: float) -> Iterator[Action]:
        try:
            yield from self._parts.transfer.came(heard.peer, rows, heard.frames, now)
        except RunError:
            return  # nobody answers then, and the rows are computed again

    def _closed(self, close: messages.Close) -> Iterator[Action]:
        steps = self._parts.requests.close(close.request)
        self._parts.transfer.close(close.request)
        if close.report:
            yield Send(self._parts.role.source, *timings(self._parts.role, close.request, steps))

    def _from_source(
        self, message: messages.Prepare | messages.Commit | messages.Abort, heard: Heard, now: float
    ) -> Iterator[Action]:
        match message:
            case messages.Prepare():
                yield from self._parts.preparation.prepare(message, b"".join(heard.frames), now)
                for early in self._parts.early.taken():
                    yield from self.take(early, now)
            case messages.Commit():
                role = self._parts.preparation.commit(message)
                if role is not None:
                    yield from self._parts.adopt(role, message, now)
            case messages.Abort():
                yield from self._parts.preparation.abort(message)
            case _:
                assert_never(message)
