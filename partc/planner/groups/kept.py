"""What a first step makes once for all steps: devices keep it, and later steps make and send it no more.

An encoder's output follows from the source alone, features from a picture. What follows from such inputs, from weights
and from constants is the same in every step of a request. A call that reads a value of the step besides is made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from partc.errors import PlanError
from partc.format.program import Add, Cut, Instruction, Join, Keep, Program, Recv, Run, Send

Programs = Mapping[str, Program]
"""Device → its program in one phase."""


def with_kept(
    first: Programs,
    later: Programs,
    brought: Collection[str],
    known: Collection[str],
    stateful: Collection[str],
) -> tuple[dict[str, Program], dict[str, Program]]:
    """The programs of the first step and of later ones; O(instructions²) in the worst case.

    Args:
        first: of the first step.
        later: of the others, as if a request brought all of its inputs with each.
        brought: inputs that it brings with the first one alone.
        known: values that a device has by itself in every step, and inputs of every step.
        stateful: sub-modules with states, which no step leaves out.

    Raises:
        PlanError: a device needs in later steps what it does not have in the first.
    """
    once = _of_request(later.values(), brought, stateful)
    rest = {device: tuple(_left(program, once)) for device, program in later.items()}
    keeping = {device: _kept(device, first[device], rest[device], known) for device in rest}
    begun = {
        device: (*program, Keep(kept)) if (kept := keeping.get(device)) else program
        for device, program in first.items()
    }
    return begun, rest


def _of_request(programs: Iterable[Program], brought: Collection[str], stateful: Collection[str]) -> set[str]:
    """The values that follow from what a request brings once."""
    items = [item for program in programs for item in program if isinstance(item, Run | Add | Cut | Join)]
    once, size = {*brought}, -1
    while len(once) > size:
        size = len(once)
        for item in items:
            is_stateful = isinstance(item, Run) and item.submodule in stateful
            if not is_stateful and once.issuperset(item.reads):
                once.update(item.writes)
    return once


def _left(program: Program, once: Set[str]) -> Iterator[Instruction]:
    """The program without what makes such values, and without their messages."""
    for item in program:
        match item:
            case Send(values, device) | Recv(values, device):
                if names := tuple(name for name in values if name not in once):
                    yield type(item)(names, device)
            case Run() | Add() | Cut() | Join():
                if not once >= {*item.writes}:
                    yield item
            case _:
                yield item


def _kept(device: str, first: Program, later: Program, known: Collection[str]) -> tuple[str, ...]:
    """The values that a device reads in later steps and does not get in them."""
    made = {*known, *(name for item in later for name in item.writes)}
    kept = tuple(dict.fromkeys(name for item in later for name in item.reads if name not in made))
    there = {name for item in first for name in (*item.reads, *item.writes)}
    if missing := [name for name in kept if name not in there]:
        raise PlanError(
            f"{device} needs {missing[0]} in later steps, and does not have it in the first",
            hint="--strategy megatron shares all blocks alike in all steps",
        )
    return kept
