"""Programs of groups, played by their meaning: any order of devices gives what one device alone computes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.format.dims import cut_sizes
from partc.format.dtypes import Array
from partc.format.plan import Exchange
from partc.format.program import Add, Cut, Emit, Join, Keep, Program, Recv, Run, Sample, Send
from partc.format.program_rules import ring_problems
from partc.planner.programs.step import step_programs
from partc.planner.programs.work import Call, Compute, Item, Sum, UnitWork, Values

DEVICES = "abcde"
WIDTH, UNITS = 3, 4
Work = Callable[..., tuple[Array, ...]]


@dataclass
class Toy:
    """A model of blocks in whole numbers, which float32 sums exactly in any order."""

    rows: int
    blocks: int
    rng: np.random.Generator
    work: dict[str, Work] = field(default_factory=dict)
    """Sub-module → what it computes."""
    weights: list[tuple[Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = ((WIDTH, UNITS), (UNITS, WIDTH))
        self.weights = [(self.numbers(sizes[0]), self.numbers(sizes[1])) for _ in range(self.blocks)]

    def numbers(self, shape: tuple[int, ...]) -> Array:
        return self.rng.integers(-2, 3, shape).astype(np.float32)

    def values(self, token: str | None) -> Values:
        shapes: dict[str, tuple[int | str, ...]] = {"ids": ("sequence", WIDTH), "logits": (1, WIDTH)}
        for j in range(self.blocks + 1):
            shapes |= {
                f"h{j}": ("sequence", WIDTH),
                f"n{j}": ("sequence", WIDTH),
                f"s{j}": ("sequence", WIDTH),
            }
            for rank in range(len(DEVICES)):
                shapes |= {f"{name}{j}.{rank}": ("sequence", UNITS) for name in "qc"}
                shapes |= {f"p{j}.{rank}": ("sequence", WIDTH)}
        last = f"h{self.blocks}"
        sample = Sample("logits", token) if token else None
        return Values({"ids": True}, frozenset(), (token or last,), sample, shapes=shapes)

    def expected(self, ids: Array) -> Array:
        hidden = ids + 1
        for enter, leave in self.weights:
            hidden = hidden + np.cumsum((2 * hidden) @ enter, 0) % 7 @ leave
        return hidden

    def call(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str], work: Work, by_rows: bool = True
    ) -> Call:
        self.work[name] = work
        return Call(Run(name, tuple(inputs), tuple(outputs)), by_rows, not by_rows)

    def alone(self, name: str, first: int, last: int) -> list[Item]:
        """Blocks on one device, and the embedding before the first, the head behind the last."""

        def work(hidden: Array) -> tuple[Array, ...]:
            hidden = hidden + 1 if first == 0 else hidden
            for enter, leave in self.weights[first:last]:
                hidden = hidden + np.cumsum((2 * hidden) @ enter, 0) % 7 @ leave
            return (hidden,)

        call = self.call(f"{name}{first}", ["ids" if first == 0 else f"h{first}"], [f"h{last}"], work, False)
        return [Compute("alone", (call,))]

    def head(self, count: int = 1) -> Compute:
        """What needs all rows, on every device of a unit."""
        call = self.call("head", [f"h{self.blocks}"], ["logits"], lambda hidden: (hidden[-1:],), False)
        return Compute("connect", (call,) * count)

    def shared(self, j: int, shares: Sequence[int], exchange: Exchange) -> list[Item]:
        """One block on the devices of a group."""
        first = np.cumsum([0, *shares])
        columns = [slice(first[rank], first[rank + 1]) for rank in range(len(shares))]
        ranks = [rank if units else None for rank, units in enumerate(shares)]
        enter, leave = self.weights[j]

        def each(kind: str, made: Callable[[int], Call]) -> tuple[Call | None, ...]:
            return tuple(None if rank is None else made(rank) for rank in ranks)

        def inner(rank: int) -> Call:
            def work(product: Array) -> tuple[Array, ...]:
                return (np.cumsum(product, 0) % 7,)

            return self.call(f"inner{j}.{rank}", [f"q{j}.{rank}"], [f"c{j}.{rank}"], work, False)

        before = [self.call(f"before{j}", [f"h{j}"], [f"n{j}"], lambda hidden: (2 * hidden,)) for _ in shares]
        after = [
            self.call(f"after{j}", [f"h{j}", f"s{j}"], [f"h{j + 1}"], lambda hidden, total: (hidden + total,))
            for _ in shares
        ]
        enters = each(
            "enter",
            lambda rank: self.call(
                f"enter{j}.{rank}", [f"n{j}"], [f"q{j}.{rank}"], lambda x: (x @ enter[:, columns[rank]],)
            ),
        )
        leaves = each(
            "leave",
            lambda rank: self.call(
                f"leave{j}.{rank}", [f"c{j}.{rank}"], [f"p{j}.{rank}"], lambda x: (x @ leave[columns[rank]],)
            ),
        )
        parts = tuple(None if rank is None else f"p{j}.{rank}" for rank in ranks)
        return [
            Compute("connect", tuple(before)),
            Compute("enter", enters, by_tiles=True),
            Compute("inner", each("inner", inner)),
            Sum(f"s{j}", parts, exchange, leaves),
            Compute("connect", tuple(after)),
        ]

    def by_rows(self, j: int, count: int) -> list[Item]:
        """One block whole on every device, each for its rows."""
        enter, leave = self.weights[j]
        works: dict[str, tuple[str, list[str], list[str], Work]] = {
            "before": ("connect", [f"h{j}"], [f"n{j}"], lambda hidden: (2 * hidden,)),
            "enter": ("enter", [f"n{j}"], [f"q{j}.0"], lambda x: (x @ enter,)),
            "inner": ("inner", [f"q{j}.0"], [f"c{j}.0"], lambda x: (np.cumsum(x, 0) % 7,)),
            "leave": ("leave", [f"c{j}.0"], [f"p{j}.0"], lambda x: (x @ leave,)),
            "after": (
                "connect",
                [f"h{j}", f"p{j}.0"],
                [f"h{j + 1}"],
                lambda hidden, total: (hidden + total,),
            ),
        }
        return [
            Compute(
                kind,  # type: ignore[arg-type]
                (self.call(f"rows.{name}{j}", inputs, outputs, work, name != "inner"),) * count,
                own_rows=True,
            )
            for name, (kind, inputs, outputs, work) in works.items()
        ]


def play(
    programs: Mapping[str, Program],
    given: Mapping[str, Array],
    work: Mapping[str, Work],
    order: Sequence[str],
) -> Array:
    """Carry out programs; the device that is asked first goes on as far as it can. What the source emits."""
    values: dict[str, dict[str, Array]] = {name: {} for name in programs} | {"a": dict(given)}
    mail: dict[tuple[str, str, tuple[str, ...]], list[Array]] = {}
    at = dict.fromkeys(programs, 0)
    emitted: list[Array] = []
    while any(at[name] < len(programs[name]) for name in programs):
        before = dict(at)
        for name in order:
            mine = values[name]
            while at[name] < len(programs[name]):
                match programs[name][at[name]]:
                    case Send(names, to):
                        mail[name, to, names] = [mine[one] for one in names]
                    case Recv(names, sender):
                        if (sender, name, names) not in mail:
                            break
                        mine |= dict(zip(names, mail.pop((sender, name, names)), strict=True))
                    case Add(terms, total):
                        mine[total] = sum((mine[term] for term in terms[1:]), mine[terms[0]].copy())
                    case Cut(whole, parts, axis):
                        ends = np.cumsum(cut_sizes(mine[whole].shape[axis], len(parts)))[:-1]
                        mine |= dict(zip(parts, np.split(mine[whole], ends, axis), strict=True))
                    case Join(parts, whole, axis):
                        mine[whole] = np.concatenate([mine[part] for part in parts], axis)
                    case Run(submodule, inputs, outputs):
                        mine |= dict(zip(outputs, work[submodule](*(mine[x] for x in inputs)), strict=True))
                    case Sample(logits, token):
                        mine[token] = mine[logits]
                    case Emit(names):
                        emitted = [mine[one] for one in names]
                    case Keep():
                        raise AssertionError(programs[name][at[name]])
                at[name] += 1
        assert at != before, "they wait for each other"
    assert not mail
    return emitted[0]


def random_path(rng: random.Random) -> tuple[Toy, list[UnitWork], str | None]:
    """Units of one device and of several in any order, each with its shares and exchanges; the source has the first."""
    blocks = rng.randint(1, 5)
    toy = Toy(rng.randint(1, 7), blocks, np.random.default_rng(rng.getrandbits(32)))
    units = [UnitWork(("a",), tuple(toy.alone("alone", 0, 0)))]
    at = 0
    while at < blocks:
        last, devices = rng.randint(at + 1, blocks), tuple(rng.sample(DEVICES, rng.randint(1, 5)))
        if devices == units[-1].devices:
            continue
        items = toy.alone("alone", at, last) if len(devices) == 1 else []
        for j in range(at, last) if len(devices) > 1 else ():
            items += random_block(toy, j, len(devices), rng)
        units.append(UnitWork(devices, tuple(items)))
        at = last
    token = rng.choice([None, "token"])
    if token and (len(units[-1].devices) == 1 or rng.random() < 0.5):
        units[-1] = UnitWork(units[-1].devices, (*units[-1].items, toy.head(len(units[-1].devices))))
    elif token:
        units.append(UnitWork((rng.choice(DEVICES),), (toy.head(),)))
    return toy, units, token


def random_block(toy: Toy, j: int, count: int, rng: random.Random) -> list[Item]:
    exchange: Exchange = rng.choice(["none", "ring", "star", "tiles"])
    if exchange == "none":
        return toy.by_rows(j, count)
    shares = [rng.randint(0, 3) for _ in range(count)]
    return toy.shared(j, cut_units(shares if any(shares) else [1] * count), exchange)


def cut_units(shares: Sequence[int]) -> list[int]:
    """Whole numbers in proportion, that make up all units."""
    ends = [UNITS * sum(shares[: at + 1]) // sum(shares) for at in range(len(shares))]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


@given(seed=st.integers(0, 2**32))
def test_any_path_gives_what_one_device_computes(seed: int) -> None:
    rng = random.Random(seed)
    toy, units, token = random_path(rng)
    order = rng.sample(DEVICES, len(DEVICES))
    programs = step_programs(units, toy.values(token))
    assert next(iter(programs)) == "a"
    assert not list(ring_problems(programs, "a"))
    ids = toy.numbers((toy.rows, WIDTH))
    found = play(programs, {"ids": ids}, toy.work, [name for name in order if name in programs])
    expected = toy.expected(ids)
    np.testing.assert_array_equal(found, expected[-1:] if token else expected)


@pytest.mark.parametrize(("exchange", "messages"), [("ring", 12), ("star", 4), ("tiles", 6)])
def test_the_number_of_messages(exchange: Exchange, messages: int) -> None:
    """D devices: 2 · D · (D - 1) messages of a sum in a ring, 2 · (D - 1) through the first, D · (D - 1) by tiles."""
    toy = Toy(6, 2, np.random.default_rng(0))
    counts = []
    for blocks in (0, 1):
        items = [item for j in range(blocks) for item in toy.shared(j, (2, 1, 1), exchange)]
        sums = [item for item in items if isinstance(item, Sum)]
        units = [UnitWork(("a",), tuple(toy.alone("alone", 0, 0))), UnitWork(("a", "b", "c"), tuple(items))]
        programs = step_programs(
            units,
            Values({"ids": True}, frozenset(), ("h1",) * len(sums), None, shapes=toy.values(None).shapes),
        )
        between = [item for program in programs.values() for item in program if isinstance(item, Send)]
        counts.append(
            sum(any(".rows" in name or name[0] in "ps" for name in item.values) for item in between)
        )
    last = 2 if exchange == "tiles" else 0  # of the result, to the source
    assert counts[1] - last == messages
