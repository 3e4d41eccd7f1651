"""A ring in virtual time whose devices change their speed: what a balancer sees of it, and what it makes of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from partc.balance.balancer import Balancer
from partc.balance.events import Back, Decision, Move, Moved, Stay, Window
from partc.balance.pieces import Piece, Pieces
from partc.balance.replan import Replanner
from partc.balance.speeds import LINKS
from partc.format.placement import Stages, stages_of
from partc.format.status import WINDOW_STEPS
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule

Load = Callable[[float], Mapping[str, float]]
"""Time → device → how much longer than planned everything takes there."""


def chain(
    seconds: Mapping[str, Sequence[float]], holds: Mapping[str, int] | None = None, hop_s: float = 0.001
) -> Problem:
    """A chain of sub-modules of one byte each, the first device the source.

    Args:
        seconds: device → seconds of each sub-module.
        holds: device → sub-modules that fit into its memory; else all.
        hop_s: seconds of every message.
    """
    count = len(next(iter(seconds.values())))
    parts = tuple(Submodule(1.0, {name: times[j] for name, times in seconds.items()}) for j in range(count))
    return Problem(
        "latency",
        next(iter(seconds)),
        tuple(Device(name, (holds or {}).get(name, count)) for name in seconds),
        parts,
        tuple(Link(a, b, 1e9, hop_s) for a, b in itertools.permutations(seconds, 2)),
        tuple(Edge(j, j + 1, 1.0, f"h{j}") for j in range(count - 1)),
        1.0,
    )


def everywhere(problem: Problem) -> Pieces:
    """Every sub-module is a piece, and all lie on all devices."""
    return pieces_on(problem, ["".join(problem.device_of)] * len(problem.submodules))


def pieces_on(problem: Problem, holders: Sequence[str]) -> Pieces:
    """Every sub-module is a piece; its holders are written as first letters: `ab`."""
    return tuple(
        Piece(j, j, frozenset(name for name in problem.device_of if name[0] in letters))
        for j, letters in enumerate(holders)
    )


def on(text: str, problem: Problem) -> Stages:
    """Stages of first letters, one a sub-module: `aabbb`."""
    names = {name[0]: name for name in problem.device_of}
    return stages_of([names[letter] for letter in text])


def letters(stages: Stages) -> str:
    """The inverse of `on`."""
    return "".join(stage.device[0] * len(stage.indices) for stage in stages)


@dataclass
class Ring:
    """A ring under a load, with a balancer; moves take no time but what `cost_s` says."""

    problem: Problem
    pieces: Pieces
    stages: Stages
    load: Load = lambda now: {}
    noise: float = 0.0
    """Every time of a window is off by up to this part, at random."""
    seed: int = 0
    cost_s: float = 0.5
    remaining_tokens: float = 1e6
    requests: int = 1
    free_bytes: Mapping[str, float] = field(default_factory=dict)
    limits: Callable[[float], Mapping[str, str]] = lambda now: {}
    jammed_s: Callable[[Stages], float] = lambda stages: 0.0
    """Seconds of a step that no plan knows of."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.random = random.Random(self.seed)
        self.truth = Replanner(self.problem, self.pieces)
        self.balancer = Balancer(self.problem, self.pieces, self.cost_s)
        self.moves: list[tuple[float, Move | Back]] = []

    def step_s(self, stages: Stages | None = None) -> float:
        """Seconds of a step, without noise."""
        return self.truth.seconds(
            stages or self.stages, {**dict.fromkeys(self.problem.device_of, 1.0), **self.ratios}
        )

    @property
    def ratios(self) -> Mapping[str, float]:
        """How much longer everything takes now."""
        return {LINKS: 1.0, **self.load(self.now)}

    def window(self) -> Window:
        """The next window."""
        planned, ratios = self.truth.planned(self.stages), self.ratios
        seconds = {name: s * ratios.get(name, 1.0) * self._noise() for name, s in planned.items()}
        self.now += WINDOW_STEPS * sum(seconds.values())
        rest = seconds.pop(LINKS) + self.jammed_s(self.stages)
        return Window(
            self.stages,
            sum(seconds.values()) + rest,
            seconds,
            self.remaining_tokens,
            requests=self.requests,
            free_bytes=self.free_bytes,
            limits=self.limits(self.now),
        )

    def _noise(self) -> float:
        return 1 + self.random.uniform(-self.noise, self.noise)

    def run(self, windows: int) -> list[Decision]:
        """Let the balancer see so many windows, and do what it says at once."""
        return [self.take() for _ in range(windows)]

    def take(self) -> Decision:
        """One window, and what follows from it."""
        decision = self.balancer.on(self.window(), self.now)
        if not isinstance(decision, Stay):
            self.moves.append((self.now, decision))
            self.stages = decision.stages
            self.balancer.on(Moved(self.cost_s), self.now)
        return decision
