"""Counters of the endpoint, in Prometheus' text format 0.0.4; nothing here touches the ring."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from partc.runtime.client.results import GuessCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_S = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BETWEEN_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


@dataclass(slots=True)
class Histogram:
    """Counts of values up to each of some bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        """Its samples; each bucket counts all below it as well."""
        seen = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{le="{bound}"}} {seen}'
        yield f"{name}_sum {self.total!r}"
        yield f"{name}_count {seen}"


@dataclass(slots=True)
class Metrics:
    """Everything that is counted."""

    requests: Counter[str] = field(default_factory=Counter)
    """Requests by outcome: ok, cancelled, refused, failed, timeout."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    drafted: int = 0
    """Tokens that were guessed, of answers that have ended."""
    accepted: int = 0
    """Those that were right."""
    begun_again: int = 0
    """Requests that a new source took over."""
    in_flight: int = 0
    waiting: int = 0
    is_ready: bool = False
    rings: Mapping[str, str] = field(default_factory=dict)
    """Ring → its state."""
    first_token: Histogram = field(default_factory=lambda: Histogram(_FIRST_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(_BETWEEN_S))

    @property
    def guesses(self) -> GuessCounts:
        """The guesses among all tokens."""
        return GuessCounts(self.generated_tokens, self.drafted, self.accepted)

    def text(self, further: Iterable[str] = ()) -> str:
        """All of it, for a scraper, and further lines."""
        return "\n".join([*self._lines(), *further, ""])

    def _lines(self) -> Iterator[str]:
        outcomes = {f'outcome="{name}"': count for name, count in sorted(self.requests.items())}
        yield from samples("partc_requests_total", "counter", "Requests that have ended.", outcomes)
        yield from _single("partc_prompt_tokens_total", "counter", "Tokens of prompts.", self.prompt_tokens)
        yield from _single(
            "partc_generated_tokens_total", "counter", "Tokens of answers.", self.generated_tokens
        )
        yield from _single("partc_drafted_tokens_total", "counter", "Tokens that were guessed.", self.drafted)
        yield from _single(
            "partc_accepted_tokens_total", "counter", "Guessed tokens that were right.", self.accepted
        )
        yield from _single(
            "partc_drafted_share",
            "gauge",
            "Share of tokens that came true from a guess.",
            self.guesses.share,
        )
        yield from _single(
            "partc_rows_per_token",
            "gauge",
            "Rows that devices computed for a token: 1, and those of wrong guesses.",
            self.guesses.rows_per_token,
        )
        yield from _single(
            "partc_begun_again_total", "counter", "Requests that a new source took over.", self.begun_again
        )
        yield from _single(
            "partc_requests_in_flight", "gauge", "Requests that have not ended.", self.in_flight
        )
        yield from _single(
            "partc_requests_waiting", "gauge", "Requests that wait for a place in a ring.", self.waiting
        )
        yield from _single("partc_ready", "gauge", "1 while a ring stands.", int(self.is_ready))
        standing = {f'ring="{escaped(name)}"': int(state == "ready") for name, state in self.rings.items()}
        yield from samples("partc_ring_ready", "gauge", "1 while this ring stands.", standing)
        histograms = {
            "partc_time_to_first_token_seconds": (
                "Time from the request to its first token.",
                self.first_token,
            ),
            "partc_inter_token_seconds": ("Time between two tokens of a request.", self.between_tokens),
        }
        for name, (about, histogram) in histograms.items():
            yield from _head(name, "histogram", about)
            yield from histogram.lines(name)


def escaped(label: str) -> str:
    """The value of a label, between quotes."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield f"{name} {value}"


def samples(name: str, kind: str, about: str, values: Mapping[str, float]) -> Iterator[str]:
    """The lines of a metric: labels → value."""
    yield from _head(name, kind, about)
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}"
