"""Lanes: a device computes one thing at a time, a link carries one message at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partc.planner.model.problem import Link


@dataclass(frozen=True)
class Span:
    """A lane at work."""

    device: str
    """The device that computes or sends."""
    receiver: str | None
    """The receiver of a message; None where the device computes."""
    work: tuple[str, ...]
    """What is computed: `enter`, `inner`, `leave`, `connect`, `alone`; the values of a message."""
    start_s: float
    finish_s: float
    arrive_s: float
    """The arrival of a message: its bytes occupy the link, the latency does not."""
    bytes: float
    """Sent; 0 where the device computes."""
    units: tuple[int, int]
    """Indices of the unit that computes or sends, and of the one that receives."""

    @property
    def lane(self) -> str:
        """A device (`A`), or one direction of a link (`A->B`)."""
        return self.device if self.receiver is None else f"{self.device}->{self.receiver}"


@dataclass
class Lanes:
    """The lanes of one step, all idle at first."""

    link_of: Mapping[tuple[str, str], Link]
    units: tuple[int, int] = (0, 0)
    """Those of the spans that follow."""
    spans: list[Span] = field(default_factory=list)
    """Spans in the order in which they were asked for."""
    free_s: dict[str, float] = field(default_factory=dict)
    """Lane → the end of its last span."""
    missing: dict[tuple[str, str], None] = field(default_factory=dict)
    """(Sender, receiver) without a link that had something to send; the step is then worth nothing."""

    def compute(self, device: str, work: str, ready_s: float, seconds: float) -> float:
        """The end of `seconds` of work on a device, which begins when it is ready and the device is free."""
        start = max(ready_s, self.free_s.get(device, 0.0))
        finish = start + seconds
        return self._occupy(Span(device, None, (work,), start, finish, finish, 0, self.units))

    def send(
        self, sender: str, receiver: str, values: tuple[str, ...], ready_s: float, count: float
    ) -> float:
        """The arrival of a message of `count` bytes."""
        link = self.link_of.get((sender, receiver))
        if link is None:
            self.missing[sender, receiver] = None
            return ready_s
        start = max(ready_s, self.free_s.get(f"{sender}->{receiver}", 0.0))
        finish = start + count / link.bandwidth_bytes_per_s
        arrive = finish + link.latency_s
        return self._occupy(Span(sender, receiver, values, start, finish, arrive, count, self.units))

    def _occupy(self, span: Span) -> float:
        self.free_s[span.lane] = span.finish_s
        self.spans.append(span)
        return span.arrive_s

    def busy_s(self) -> dict[str, float]:
        """Lane → seconds at work."""
        busy: dict[str, float] = {}
        for span in self.spans:
            busy[span.lane] = busy.get(span.lane, 0.0) + span.finish_s - span.start_s
        return busy
