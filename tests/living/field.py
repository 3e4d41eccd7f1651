"""A ring on which trials are made: requests, a disturbance in the middle, and a verdict."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

from partc.balance.order import Order
from partc.cli.balance import balanced
from partc.errors import PartcError
from partc.format.message_parts import Sampling
from partc.format.messages import Placed
from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result, Tokens
from tests.living.episodes import PATIENCE_S, REJOIN_S, Episode, Ground, ground
from tests.living.memory import Peaks, largest
from tests.living.models import Subject
from tests.living.stalls import Stall, stalls, usual_s

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
    native: tuple[str, ...] = ()
    """Devices that run the native runner given to `Field`; the others run as the build says."""


@dataclass(slots=True)
class Outcome:
    """How a trial went."""

    number: int
    victim: str
    at: int
    verdict: str
    """`right`, `error` (a clear one in time, where it may end so), or what is wrong."""
    recovery_s: float | None = None
    token_s: float = 0.0
    """The usual time of a token under the last placement."""
    promised_s: float | None = None
    """The time of a token after the loss of a device, by the plan."""
    told: str = ""
    """The error."""
    stalls: list[Stall] = dataclasses.field(default_factory=list)
    """One for each move while tokens came."""
    requests: int = 0
    """Those that ended with tokens."""
    carried: int = 0
    """Those of them that another placement, or the same one anew, came into force under."""
    native: tuple[str, ...] = ()
    """Devices that ran the native runner, of a ring of both kinds."""

    @property
    def is_fine(self) -> bool:
        """Whether the ring kept its promise."""
        return self.verdict in ("right", "error")


class Field:
    """A ring on which trials are made one after the other, until one of them spoils it."""

    def __init__(
        self,
        bundle: Path,
        subject: Subject,
        episode: Episode,
        *,
        memory: bool = False,
        native: Path | None = None,
        slowness: float = 1.0,
        guessed: float | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            bundle: the build.
            subject: its model.
            episode: what disturbs it.
            memory: look at the memory of the runners all the time.
            native: the native runner, of which trials say which devices run it.
            slowness: the multiple of all patience, on a machine that has much else to do.
            guessed: the share of tokens that the source is told rightly what to expect; None: it guesses by itself.
        """
        self.planned: dict[str, float] = {}
        """Device → bytes that the plan says of the placements so far."""
        self.peaks: dict[str, float] = {}
        """Device → the most bytes that its runners held, in rings that have ended."""
        self._bundle, self._subject, self._episode, self._memory = bundle, subject, episode, memory
        self._native, self._slowness, self._guessed = native, slowness, guessed
        self._natives: tuple[str, ...] = ()
        """Devices that run the native runner now."""
        self._expected: dict[int, Sequence[int]] = {}
        self._stack = ExitStack()
        self._ground: Ground | None = None

    def trial(self, trial: Trial) -> Outcome:
        """Make a trial."""
        if trial.native != self._natives:
            self.close()
            self._natives = trial.native
        try:
            outcome = self._trial(trial)
        except PartcError as error:
            outcome = Outcome(trial.number, trial.victim, trial.at, "no ring", told=str(error))
        outcome.native = trial.native
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
                    alone = self._ask(client, seed, drafts=False)
                    self._expected[seed] = alone.result(HANG_S * self._slowness).tokens[0]
            if self._episode.balances:
                place.settle(client)
            return self._disturbed(client, place, trial, self._epoch(client))

    def _place(self) -> Ground:
        if self._ground is None:
            runners = {name: (str(self._native),) for name in self._natives}
            self._ground = self._stack.enter_context(
                ground(self._bundle, self._episode, runners, self._slowness)
            )
            if self._memory:
                self._stack.enter_context(self._watched(self._ground))
        return self._ground

    @contextmanager
    def _watched(self, place: Ground) -> Iterator[None]:
        """Note the memory of a ring, as planned and as held."""
        with Peaks(place.ring, self._bundle) as peaks:
            yield
        self.planned = largest(self.planned, place.promises.memory(place.history))
        self.peaks = largest(self.peaks, peaks.bytes)

    def _epoch(self, client: Client) -> int:
        """The epoch of the placement in force."""
        return _last_epoch(client, self._ask(client, 0, tokens=1).result(HANG_S * self._slowness))

    def _ask(
        self,
        client: Client,
        seed: int,
        on_token: Callable[[Tokens], None] | None = None,
        tokens: int | None = None,
        *,
        drafts: bool = True,
    ) -> Request:
        sampling = Sampling(0.8, 0, 1.0, seed) if seed % 2 else Sampling()
        return client.submit(
            self._subject.prompt_ids(seed),
            max_new_tokens=tokens or self._subject.tokens,
            sampling=sampling,
            ignore_eos=True,
            on_token=on_token,
            drafts=drafts,
            expected=self._told(seed) if drafts else (),
        )

    def _told(self, seed: int) -> list[int]:
        """What the source is told to expect of an answer."""
        if self._guessed is None:
            return []
        chance = Random(seed)
        right = self._expected.get(seed, ())
        return [token if chance.random() < self._guessed else right[0] for token in right]

    def _disturbed(self, client: Client, place: Ground, trial: Trial, epoch: int) -> Outcome:
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
        earlier = len(place.moves)
        with self._balancing(client, place, requests):
            client.wait(requests, HANG_S * self._slowness * len(requests))
        ended = time.monotonic()
        if disturbing.ident is not None:
            disturbing.join(2 * HANG_S)
        outcome = Outcome(trial.number, trial.victim, trial.at, "right")
        blows = [*began, *place.lost.values()]
        outcome.verdict, outcome.told = self._verdict(
            trial, place, requests, ended - max(blows, default=ended)
        )
        if began and outcome.verdict == "right":
            results = [request.outcome for request in requests if isinstance(request.outcome, Result)]
            timings = [result.timings[client.role.source] for result in results]
            outcome.recovery_s = max(recovery_s(times, began[0]) for times in arrivals)
            outcome.token_s, outcome.promised_s = usual_s(timings[0], last_epoch=True), place.promised_s
            outcome.stalls = stalls(place.moves[earlier:], timings)
            outcome.requests = len(results)
            outcome.carried = sum(_last_epoch(client, result) > epoch for result in results)
        return outcome

    @contextmanager
    def _balancing(self, client: Client, place: Ground, requests: Sequence[Request]) -> Iterator[None]:
        """Let the balancer move sub-modules, if it is to; then requests are not needed that have not begun."""

        def tell(order: Order, outcome: Placed | PartcError) -> None:
            if isinstance(outcome, PartcError):
                return
            place.moved(order.placement, outcome)
            for request in requests:
                if not request.steps:
                    request.cancel()

        if not self._episode.balances:
            yield
            return
        with balanced(client, self._bundle, tell):
            yield

    def _verdict(
        self, trial: Trial, place: Ground, requests: Sequence[Request], seconds: float
    ) -> tuple[str, str]:
        pairs = zip(trial.seeds, requests, strict=True)
        found = [(seed, request.outcome) for seed, request in pairs if not request.is_cancelled]
        if any(outcome is None for _, outcome in found):
            return "hangs", f"no end within {HANG_S * self._slowness * len(requests)} s"
        for seed, outcome in found:
            if isinstance(outcome, Result) and outcome.tokens[0] != self._expected[seed]:
                return "wrong tokens", _difference(seed, outcome.tokens[0], self._expected[seed])
        errors = [outcome for _, outcome in found if isinstance(outcome, PartcError)]
        if not errors:
            return "right", ""
        told = "; ".join(str(error).replace("\n", " ") for error in errors)
        if not self._episode.may_fail(place):
            return "failed", told
        return (
            ("error", told)
            if seconds < PROMISED_S * self._slowness
            else (f"error after {seconds:.1f} s", told)
        )


def _difference(seed: int, found: Sequence[int], expected: Sequence[int]) -> str:
    pairs = enumerate(zip(found, expected, strict=False))
    first = next((number for number, (one, other) in pairs if one != other), len(found))
    return f"request of seed {seed}: token {first} of {len(found)} differs"


def _last_epoch(client: Client, result: Result) -> int:
    """The epoch of the last step of a request."""
    return int(result.timings[client.role.source].column("epoch")[-1])


def recovery_s(arrivals: Sequence[float], began: float) -> float:
    """From the disturbance to the end of the longest wait that ends after it."""
    waits = [(later - max(sooner, began), later) for sooner, later in pairwise(arrivals) if later > began]
    return max(waits, default=(0.0, began))[1] - began
