"""How many rings of each kind: integer programmes whose columns are kinds of rings.

With x_r rings of kind r, which has u_rk devices of kind k and answers µ_r requests per second of wish w(r), n_k
devices of kind k, rates λ_w and the utilisation ρ:

    fewest devices    min Σ_r (Σ_k u_rk) x_r   where   Σ_{r: w(r) = w} ρ µ_r / λ_w x_r ≥ 1,  Σ_r u_rk x_r ≤ n_k
    most requests     max t                    where   Σ_{r: w(r) = w} ρ µ_r / λ_w x_r ≥ t,  Σ_r u_rk x_r ≤ n_k

Where the first has no solution, the t of the second is the part of the demand that every wish can have; where it has
one, the second, with no more devices, chooses among its solutions. Devices are counted by kind, so that a thousand
devices of five kinds are five rows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from partc.config.demand import Demand
from partc.errors import PlanError
from partc.planner.baselines.solver_process import SolverError, ask
from partc.planner.rings.kinds import Kind
from partc.planner.rings.rings import RingKind

_SOLVER = (sys.executable, "-P", "-m", "partc.planner.rings.solver")
_LIMIT_S = 12.0
"""Time of the solver for one programme."""
_PLENTY = 1e6
"""The part of a wish from which on rings do not have to answer more."""
_ROUNDING = 1e-6
"""Relative error of the solver's bound, so that a whole number is not missed by rounding."""


class Row(msgspec.Struct, frozen=True):
    """least ≤ Σ factor · column ≤ most; None: no limit."""

    columns: list[int]
    factors: list[float]
    least: float | None = None
    most: float | None = None


class Programme(msgspec.Struct, frozen=True):
    """Σ cost · column is to be least; the columns are at least 0."""

    costs: list[float]
    whole: int
    """The first so many columns are whole numbers."""
    rows: list[Row]
    limit_s: float


class Counts(msgspec.Struct, frozen=True):
    """The end of a search by the solver."""

    columns: list[float] | None
    """None: none was found; where `proven`, there is none."""
    bound: float | None
    """No solution costs less; None: not known."""
    proven: bool


@dataclass(frozen=True)
class Most:
    """As many requests as can be answered."""

    part: float
    """The part of the demand, of every wish; may be above 1."""
    counts: tuple[int, ...]
    """Rings of each kind."""


@dataclass(frozen=True)
class Choice:
    """Numbers of rings."""

    counts: tuple[int, ...]
    """Rings of each kind."""
    bound: int
    """No choice needs fewer devices."""


def fewest_devices(rings: Sequence[RingKind], kinds: Sequence[Kind], demand: Demand) -> Choice | None:
    """The rings that answer the demand with the fewest devices; None where all devices do not suffice.

    Of the choices with so few devices, it is the one that can answer most requests, as far as the solver finds it.

    Raises:
        PlanError: the solver gave no answer.
    """
    rows = [
        *(_served(rings, demand, wish, least=1.0, most=1.0) for wish in range(len(demand.wishes))),
        *_devices(rings, kinds),
    ]
    found = _ask(Programme([float(ring.size) for ring in rings], len(rings), rows, _LIMIT_S))
    if found.columns is None:
        if found.proven:
            return None
        raise _failed("found no choice in its time")
    counts = tuple(map(round, found.columns))
    value = _size(rings, counts)
    bound = value if found.proven else math.ceil((found.bound or 0.0) * (1 - _ROUNDING))
    roomy = most_requests(rings, kinds, demand, devices=value)
    return Choice(roomy.counts if roomy.part >= 1 else counts, bound)


def most_requests(
    rings: Sequence[RingKind], kinds: Sequence[Kind], demand: Demand, devices: int | None = None
) -> Most:
    """The largest part of the demand that can be answered, the same of every wish, and the rings for it.

    Args:
        rings: all kinds of rings.
        kinds: all devices.
        demand: what is wanted.
        devices: no more than so many, where it is given.

    Raises:
        PlanError: the solver gave no answer.
    """
    part = len(rings)
    rows = [*_devices(rings, kinds)]
    for wish in range(len(demand.wishes)):
        served = _served(rings, demand, wish, least=0.0, most=_PLENTY)
        rows.append(Row([*served.columns, part], [*served.factors, -1.0], 0.0))
    if devices is not None:
        rows.append(Row(list(range(part)), [float(ring.size) for ring in rings], most=float(devices)))
    found = _ask(Programme([0.0] * part + [-1.0], part, rows, _LIMIT_S))
    if found.columns is None:
        return Most(0.0, (0,) * part)
    counts = tuple(map(round, found.columns[:part]))
    return Most(min(_parts(rings, demand, counts)), counts)


def _size(rings: Sequence[RingKind], counts: Sequence[int]) -> int:
    return sum(ring.size * count for ring, count in zip(rings, counts, strict=True))


def _parts(rings: Sequence[RingKind], demand: Demand, counts: Sequence[int]) -> list[float]:
    """The part of each wish that so many rings answer."""
    parts = [0.0] * len(demand.wishes)
    for ring, count in zip(rings, counts, strict=True):
        rate = demand.wishes[ring.wish].rate_per_s
        parts[ring.wish] += demand.utilisation * ring.capacity_per_s * count / rate
    return parts


def _served(rings: Sequence[RingKind], demand: Demand, wish: int, least: float, most: float) -> Row:
    """The part of a wish that its rings answer; each counts as at most `most`.

    Parts, and not rates, so that the tolerance of the solver is a part of the wish, however rare its requests are. A
    ring that counts as 1 and not as more changes nothing where 1 is wanted, as rings are whole.
    """
    columns = [r for r, ring in enumerate(rings) if ring.wish == wish]
    rate = demand.wishes[wish].rate_per_s
    return Row(
        columns, [min(demand.utilisation * rings[r].capacity_per_s / rate, most) for r in columns], least
    )


def _devices(rings: Sequence[RingKind], kinds: Sequence[Kind]) -> list[Row]:
    rows = []
    for k, kind in enumerate(kinds):
        columns = [r for r, ring in enumerate(rings) if ring.uses[k]]
        rows.append(Row(columns, [float(rings[r].uses[k]) for r in columns], most=float(len(kind.members))))
    return rows


def _ask(programme: Programme) -> Counts:
    try:
        return ask(msgspec.to_builtins(programme), programme.limit_s, _SOLVER, Counts)
    except SolverError as error:
        raise _failed(str(error)) from error


def _failed(why: str) -> PlanError:
    return PlanError(
        f"no fleet was found: the solver {why}",
        hint="try again, or give fewer `devices_per_ring` in the file of the demand",
    )
