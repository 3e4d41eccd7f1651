"""The rings that answer a demand with the fewest devices, and what they do under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from partc.config.demand import Demand, Wish
from partc.config.units import format_seconds
from partc.errors import PlanError
from partc.format.fleet import Fleet, RingGroup, RingStage, Wanted
from partc.planner.model.effort import Budget
from partc.planner.rings.choose import Choice, fewest_devices, most_requests
from partc.planner.rings.kinds import Kind
from partc.planner.rings.rings import ALL_RINGS, Closest, Problems, RingKind, plan_rings
from partc.planner.rings.traffic import simulate_wish

_TOKENS = 240_000
"""Tokens that are simulated, about: some fifteen seconds for rings of three devices."""
_SEED = 0
"""The seed of the arrivals of the first wish; the others follow."""


def plan_fleet(
    demand: Demand, kinds: Sequence[Kind], most: int, problems: Problems, slots: int, where: str
) -> Fleet:
    """The rings of at most `most` devices that answer the demand with the fewest devices, simulated.

    Args:
        demand: what is wanted.
        kinds: all devices.
        most: devices of a ring, at most.
        problems: makes the planning problem of a wish.
        slots: requests that a ring takes at once; others wait.
        where: the file of the demand, for messages.

    Raises:
        PlanError: no ring is as quick as wished for, or the devices do not suffice; says what would be possible.
    """
    budget = Budget(ALL_RINGS)
    rings: list[RingKind] = []
    for index, wish in enumerate(demand.wishes):
        found, closest = plan_rings(kinds, most, index, wish, problems, slots, budget)
        if not found:
            raise _none(wish, closest, most)
        rings += found
    choice = fewest_devices(rings, kinds, demand)
    if choice is None:
        raise _too_much(rings, kinds, demand, where)
    return _fleet(demand, kinds, most, rings, choice, slots)


def _none(wish: Wish, closest: Closest | None, most: int) -> PlanError:
    if closest is None:
        return PlanError(
            f"no ring of at most {most} devices has room for the model",
            where=wish.where,
            hint="give more `devices_per_ring`, quantise the model, or give devices more memory",
        )
    wishes = {"first_token": wish.first_token_s, "per_token": wish.per_token_s}
    best = {"first_token": closest.first_token_s, "per_token": closest.per_token_s}
    asked = ", ".join(f"{key}: {format_seconds(value)}" for key, value in wishes.items() if value)
    come = ", ".join(
        f"{key}: {format_seconds(took)}" for key, took in best.items() if took and wishes[key] is not None
    )
    return PlanError(
        f"no ring of at most {most} devices is as quick as wished for ({asked})",
        where=wish.where,
        hint=f"the closest that a ring comes to, for a request that is alone, is {come}",
    )


def _too_much(rings: Sequence[RingKind], kinds: Sequence[Kind], demand: Demand, where: str) -> PlanError:
    """The most that could be answered, of all lines alike, or of each alone where there is no ring for every line."""
    part = most_requests(rings, kinds, demand).part
    if part > 0:
        said = f"the demand is more than all devices together can answer: {part:.1%} of it"
        rates = ", ".join(_rate(wish.rate_per_s * part) for wish in demand.wishes)
    else:
        said = "the devices do not suffice for a ring for each line of the demand"
        rates = " or ".join(
            f"{_rate(_alone(rings, kinds, demand, index))} of line {index + 1} alone"
            for index in range(len(demand.wishes))
        )
    hint = (
        f"the most, at a utilisation of {demand.utilisation:.0%}, is {rates}; add devices, or wish for less"
    )
    return PlanError(said, where=where, hint=hint)


def _alone(rings: Sequence[RingKind], kinds: Sequence[Kind], demand: Demand, index: int) -> float:
    """Requests per second that all devices could answer of one wish."""
    wish = demand.wishes[index]
    mine = [replace(ring, wish=0) for ring in rings if ring.wish == index]
    return wish.rate_per_s * most_requests(mine, kinds, replace(demand, wishes=(wish,))).part


def _rate(per_s: float) -> str:
    return f"{per_s:.3g}/s" if per_s >= 1 else f"{per_s * 60:.3g}/min"


def _fleet(
    demand: Demand, kinds: Sequence[Kind], most: int, rings: Sequence[RingKind], choice: Choice, slots: int
) -> Fleet:
    chosen = [(ring, count) for ring, count in zip(rings, choice.counts, strict=True) if count]
    free = {kind.name: iter(kind.members) for kind in kinds}
    kind_of = {name: kind.name for kind in kinds for name in kind.members}
    groups = tuple(_group(ring, count, kind_of, free) for ring, count in chosen)
    left = {name for members in free.values() for name in members}
    devices = sum(len(kind.members) for kind in kinds) - len(left)
    proven = sum(ring.proven for ring in rings)
    tokens = _TOKENS // len(demand.wishes)
    note = "" if proven == len(rings) else f", {len(rings) - proven} of them not proven to be the best"
    return Fleet(
        utilisation=demand.utilisation,
        devices_per_ring=most,
        wanted=tuple(_wanted(chosen, index, wish, slots, tokens) for index, wish in enumerate(demand.wishes)),
        groups=groups,
        kinds={kind.name: kind.members for kind in kinds},
        left_over=tuple(name for kind in kinds for name in kind.members if name in left),
        devices=devices,
        bound=choice.bound,
        gap=(devices - choice.bound) / devices,
        method=f"integer programme over {len(rings)} kinds of rings{note}",
    )


def _group(
    ring: RingKind, count: int, kind_of: Mapping[str, str], free: Mapping[str, Iterator[str]]
) -> RingGroup:
    """The rings of a kind with devices that are free."""
    return RingGroup(
        demand=ring.wish,
        stages=tuple(RingStage(kind_of[stage.device], stage.first, stage.last) for stage in ring.stages),
        rings=tuple(tuple(next(free[kind_of[stage.device]]) for stage in ring.stages) for _ in range(count)),
        capacity_per_s=ring.capacity_per_s,
        first_token_s=ring.first_token_s,
        per_token_s=ring.per_token_s,
    )


def _wanted(
    chosen: Sequence[tuple[RingKind, int]], index: int, wish: Wish, slots: int, tokens: int
) -> Wanted:
    mine = [ring for ring, count in chosen if ring.wish == index for _ in range(count)]
    capacity = sum(ring.capacity_per_s for ring in mine)
    return Wanted(
        rate_per_s=wish.rate_per_s,
        prompt=wish.prompt,
        answer=wish.answer,
        first_token_s=wish.first_token_s,
        per_token_s=wish.per_token_s,
        rings=len(mine),
        capacity_per_s=capacity,
        tokens_per_s=capacity * wish.answer,
        simulated=simulate_wish(mine, wish, slots, tokens, _SEED + index),
    )
