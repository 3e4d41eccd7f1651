"""What a ring of our own cores and engines computes with a build, in virtual time: what every ring must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.conformance.findings import Mismatch, same
from partc.errors import InternalError
from partc.format.dtypes import Array
from partc.format.message_parts import Sampling
from partc.format.role import load_role
from partc.runtime.client.results import Crossing
from partc.runtime.engines.contract import load_engine
from partc.runtime.virtual.ring import Ring

_LIMIT_S = 60.0
GREEDY = Sampling()


@dataclass(frozen=True)
class Expected:
    """The result of a request."""

    tokens: list[list[int]]
    finish: list[str]
    trace: Sequence[Crossing]


class Reference:
    """A ring in one process, without sockets."""

    def __init__(self, build: Path) -> None:
        """Open a build."""
        folders = {path.parent.name: path.parent for path in sorted(build.glob("devices/*/build.json"))}
        roles = {name: load_role(folder) for name, folder in folders.items()}
        self._ring = Ring(roles, lambda name: load_engine(roles[name], folders[name]))

    def answer(
        self, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = GREEDY, **options: Any
    ) -> Expected:
        """The result of a request, which is traced."""
        ring = self._ring
        asked = ring.client.submit(prompts, count, sampling=sampling, trace=True, **options)
        ring.run(ring.clock.now + _LIMIT_S, until=lambda: asked.done)
        if asked.result is None:
            raise InternalError("the ring of the reference hangs")
        return Expected([list(row) for row in asked.result.tokens], list(asked.result.finish), asked.trace)


def same_trace(found: Sequence[Crossing], right: Sequence[Crossing]) -> None:
    """Hold what crossed links, and what was drawn from, against the reference; bit for bit.

    Raises:
        Mismatch: naming the first value that differs.
    """
    ours, theirs = _by_place(right), _by_place(found)
    for place, value in ours.items():
        device, peer, step, name = place
        where = f"{name} of step {step}, which {device} has from {peer}"
        if place not in theirs:
            raise Mismatch(f"{where}, is not in the trace")
        other = theirs[place]
        same((other.shape, other.dtype), (value.shape, value.dtype), where)
        if other.tobytes() != value.tobytes():
            raise Mismatch(f"{where}, has other bits")
    same(sorted(theirs), sorted(ours), "values in the trace")


def _by_place(trace: Sequence[Crossing]) -> Mapping[tuple[str, str, int, str], Array]:
    return {
        (each.device, each.peer, each.step, name): array
        for each in trace
        for name, array in each.values.items()
    }
