"""A ring on which trials are made: requests, a disturbance in the middle, and a verdict."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median

from partc.errors import PartcError
from partc.format.message_parts import Sampling
from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result, Tokens
from tests.living.episodes import PATIENCE_S, REJOIN_S, Episode, Ground, ground
from tests.living.models import Subject

HANG_S = 60.0
PROMISED_S = PATIENCE_S + REJOIN_S + 2.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What is random in a trial."""

    number: int
    victim: str
    at: int
    """The token after which the disturbance comes; 0: while the prompt is computed."""
    delay_s: float
    """How long after."""
    seeds: tuple[int, ...]
    """Of the requests."""


@dataclass(slots=True)
class Outcome:
    """How a trial went."""

    number: int
    victim: str
    at: int
    verdict: str
    """`right`, `error` (a clear one in time, where it may end so), or what is wrong."""
    recovery_s: float | None
    token_s: float
    """The usual time of a token after the disturbance."""
    told: str = ""
    """The error."""

    @property
    def is_fine(self) -> bool:
        """Whether the ring kept its promise."""
        return self.verdict in ("right", "error")


class Field:
    """A ring on which trials are made one after the other, until one of them spoils it."""

    def __init__(self, bundle: Path, subject: Subject, episode: Episode) -> None:
        """Nothing is started yet."""
        self._bundle, self._subject, self._episode = bundle, subject, episode
        self._expected: dict[int, Sequence[int]] = {}
        self._stack = ExitStack()
        self._ground: Ground | None = None
        self._ports = free_ports()

    def trial(self, trial: Trial) -> Outcome:
        """Make a trial."""
        try:
            outcome = self._trial(trial)
        except PartcError as error:
            outcome = Outcome(trial.number, trial.victim, trial.at, "no ring", None, 0.0, str(error))
        if outcome.verdict != "right" or not self._episode.spares_ring:
            self.close()
        return outcome

    def close(self) -> None:
        """End the ring; the next trial has another one."""
        self._stack.close()
        self._ground = None

    def _trial(self, trial: Trial) -> Outcome:
        place = self._place()
        with place.ring.client() as client:
            for seed in trial.seeds:
                if seed not in self._expected:
                    self._expected[seed] = self._ask(client, seed).result(HANG_S).tokens[0]
            return self._disturbed(client, place, trial)

    def _place(self) -> Ground:
        if self._ground is None:
            self._ground = self._stack.enter_context(ground(self._bundle, self._episode, self._ports))
        return self._ground

    def _ask(self, client: Client, seed: int, on_token: Callable[[Tokens], None] | None = None) -> Request:
        sampling = Sampling(0.8, 0, 1.0, seed) if seed % 2 else Sampling()
        return client.submit(
            self._subject.prompt_ids(seed),
            max_new_tokens=self._subject.tokens,
            sampling=sampling,
            ignore_eos=True,
            on_token=on_token,
        )

    def _disturbed(self, client: Client, place: Ground, trial: Trial) -> Outcome:
        arrivals: list[list[float]] = [[] for _ in trial.seeds]
        began: list[float] = []

        def disturb() -> None:
            time.sleep(trial.delay_s)
            began.append(time.monotonic())
            self._episode.disturb(place, trial.victim, Random(f"{trial.number}/{trial.victim}"))

        disturbing = threading.Thread(target=disturb, daemon=True)

        def arrived(number: int, tokens: Tokens) -> None:
            arrivals[number].append(time.monotonic())
            if number == 0 and len(arrivals[0]) == trial.at:
                disturbing.start()

        requests = [
            self._ask(client, seed, partial(arrived, number)) for number, seed in enumerate(trial.seeds)
        ]
        if trial.at == 0:
            disturbing.start()
        client.wait(requests, HANG_S)
        ended = time.monotonic()
        if disturbing.ident is not None:
            disturbing.join(2 * HANG_S)
        found = [request.outcome for request in requests]
        verdict, told = self._verdict(trial, found, ended - began[0] if began else 0.0)
        recovery = max((recovery_s(times, began[0]) for times in arrivals), default=0.0) if began else None
        return Outcome(
            trial.number, trial.victim, trial.at, verdict, recovery if verdict == "right" else None,
            usual_s(arrivals[0], trial.at), told,
        )  # fmt: skip

    def _verdict(
        self, trial: Trial, found: Sequence[Result | PartcError | None], seconds: float
    ) -> tuple[str, str]:
        if None in found:
            return "hangs", f"no end within {HANG_S} s"
        for seed, outcome in zip(trial.seeds, found, strict=True):
            if isinstance(outcome, Result) and outcome.tokens[0] != self._expected[seed]:
                return "wrong tokens", _difference(seed, outcome.tokens[0], self._expected[seed])
        errors = [outcome for outcome in found if isinstance(outcome, PartcError)]
        if not errors:
            return "right", ""
        told = "; ".join(str(error).replace("\n", " ") for error in errors)
        if not self._episode.may_fail:
            return "failed", told
        return ("error", told) if seconds < PROMISED_S else (f"error after {seconds:.1f} s", told)


def _difference(seed: int, found: Sequence[int], expected: Sequence[int]) -> str:
    pairs = enumerate(zip(found, expected, strict=False))
    first = next((number for number, (one, other) in pairs if one != other), len(found))
    return f"request of seed {seed}: token {first} of {len(found)} differs"


def recovery_s(arrivals: Sequence[float], began: float) -> float:
    """From the disturbance to the end of the longest wait that ends after it."""
    waits = [(later - max(sooner, began), later) for sooner, later in pairwise(arrivals) if later > began]
    return max(waits, default=(0.0, began))[1] - began


def usual_s(arrivals: Sequence[float], at: int) -> float:
    """The median time of a token after the disturbance."""
    return median([b - a for a, b in pairwise(arrivals[at:])] or [0.0])


def free_ports() -> Iterator[int]:
    """Ports that were free when they were asked for."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        yield port
