"""Rings that are all alive and take short turns."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.results import Tokens
from tests.bench.ring.reading import Readers
from tests.bench.ring.requests import PROMPT, hop_times, ids, pair_time, submit_around, token_times
from tests.bench.speed.clocks import process_clock

TOKENS = {"110M": 24, "1.1B": 12}
"""Tokens of one turn."""
DECODE_TURNS = 3
"""In a round, which has one turn of pairs and one of prompts besides."""
PATIENCE_S = 60.0
"""A busy machine lets a runner wait; it is not gone then."""


@dataclass
class Measured:
    """The measurements of one ring in all rounds; seconds."""

    token: list[float] = field(default_factory=list)
    """From a token to the next."""
    compute: list[float] = field(default_factory=list)
    """Seconds of that which were computing, on all devices together."""
    hop: list[float] = field(default_factory=list)
    """From `send` to `run`, each hop of each token."""
    cpu: list[float] = field(default_factory=list)
    """CPU time of all runners, a token; one of each turn."""
    pair: list[float] = field(default_factory=list)
    """A token while two requests are in flight; one of each turn."""
    prompt: list[float] = field(default_factory=list)
    """A prompt; one of each turn."""


class Member:
    """A ring and what was measured of it."""

    def __init__(self, bundle: Path, tokens: int, stack: ExitStack) -> None:
        """Starts it; `stack` ends it."""
        self._ring = stack.enter_context(launch_local(bundle, floor_s=PATIENCE_S, pin=True))
        self._client = stack.enter_context(self._ring.client())
        self._names = self._client.role.ring
        self._tokens = tokens
        self._seed = 0
        self.measured = Measured()

    def decode(self) -> None:
        """One request of a few tokens."""
        marks: dict[int, float] = {}
        first, last = 1, self._tokens - 1

        def mark(tokens: Tokens) -> None:
            if tokens.step in (first, last):
                marks[tokens.step] = _cpu_s(self._ring)

        result = submit_around(self._client, self._tokens, self._next(), on_token=mark).result()
        whole, compute = token_times(result, self._names)
        self.measured.token.extend(map(float, whole))
        self.measured.compute.extend(map(float, compute))
        self.measured.hop.extend(hop_times(result, self._names))
        self.measured.cpu.append((marks[last] - marks[first]) / (last - first))

    def pair(self) -> None:
        """Two requests of a few tokens at once."""
        requests = [submit_around(self._client, self._tokens, self._next()) for _ in range(2)]
        results = [request.result() for request in requests]
        self.measured.pair.append(pair_time(results, self._client.role.source))

    def prompt(self) -> None:
        """A long prompt and its first token."""
        self.measured.prompt.append(self._client.generate(ids(PROMPT, self._next()), 1).elapsed_s)

    def _next(self) -> int:
        """A seed that was not used: other tokens every time."""
        self._seed += 1
        return self._seed


class Turns(NamedTuple):
    """The measurements of all rings."""

    rings: dict[str, Measured]
    reading_gain: list[float]
    """What two processes read from memory at once over what one reads, in each round."""
    load: float
    """The highest load of the machine meanwhile."""


def take_turns(builds: Mapping[str, Path], model: str, rounds: int) -> Turns:
    """All rings and the readers of memory, one after the other, many times."""
    asked: list[Callable[[Member], None]] = [*[Member.decode] * DECODE_TURNS, Member.pair, Member.prompt]
    loads, gains = [], []
    with ExitStack() as stack:
        readers = stack.enter_context(Readers())
        members = {name: Member(bundle, TOKENS[model], stack) for name, bundle in builds.items()}
        order = deque(members.values())
        for number in range(1 + rounds):
            for ask in asked:
                for member in order:
                    ask(member)
                order.rotate(-1)
            gains.append(readers.gain())
            loads.append(os.getloadavg()[0])
            if not number:  # the first time, buffers are made and caches are cold
                for member in order:
                    member.measured = Measured()
    return Turns({name: member.measured for name, member in members.items()}, gains[1:], max(loads))


def _cpu_s(ring: LocalRing) -> float:
    """CPU time of all runners so far, seconds."""
    return sum(time.clock_gettime(process_clock(pid)) for pid in ring.pids.values())
