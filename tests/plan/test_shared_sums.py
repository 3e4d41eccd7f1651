"""The instructions of a sum over devices: played in any order, every device has the same bits of the whole sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.format.dtypes import Array
from partc.format.program import Add, Instruction, Recv, Send
from partc.format.program_rules import ring_problems
from partc.ir.plan import Exchange
from partc.plan.shared.sums import part_name, sum_name, sum_programs

DEVICES = "abcde"


def play(
    programs: Mapping[str, Sequence[Instruction]], values: dict[str, dict[str, Array]], order: Sequence[str]
) -> None:
    """Carry out programs; the device that is asked first goes on as far as it can."""
    mail: dict[tuple[str, str, tuple[str, ...]], list[Array]] = {}
    at = dict.fromkeys(programs, 0)
    while any(at[name] < len(programs[name]) for name in programs):
        before = dict(at)
        for name in order:
            while at[name] < len(programs[name]):
                match programs[name][at[name]]:
                    case Send(names, to):
                        mail[name, to, names] = [values[name][one] for one in names]
                    case Recv(names, sender):
                        if (sender, name, names) not in mail:
                            break
                        values[name] |= dict(zip(names, mail.pop((sender, name, names)), strict=True))
                    case Add(terms, total):
                        found = values[name][terms[0]].copy()
                        for term in terms[1:]:
                            found += values[name][term]
                        values[name][total] = found
                    case other:
                        raise AssertionError(other)
                at[name] += 1
        assert at != before, "they wait for each other"
    assert not mail


@given(
    shares=st.lists(st.integers(0, 3), min_size=2, max_size=5).filter(any),
    exchange=st.sampled_from(["ring", "star"]),
    seed=st.integers(0, 2**32),
)
def test_every_device_has_the_sum(shares: list[int], exchange: Exchange, seed: int) -> None:
    count, rng = len(shares), np.random.default_rng(seed)
    members = DEVICES[:count]
    parts = rng.normal(size=(count, count, 3)).astype(np.float32)
    values: dict[str, dict[str, Array]] = {
        name: {part_name("y", rank, piece): parts[rank, piece] for piece in range(count) if shares[rank]}
        for rank, name in enumerate(members)
    }
    programs = sum_programs("y", tuple(members), shares, exchange)
    assert not list(ring_problems({name: tuple(items) for name, items in programs.items()}, "a"))
    play(programs, values, [str(name) for name in rng.permutation(list(members))])
    with_part = [rank for rank, units in enumerate(shares) if units]
    for piece in range(count):
        first = values["a"][sum_name("y", piece)]
        np.testing.assert_allclose(first, parts[with_part, piece].sum(0), atol=1e-5)
        for name in members:
            assert values[name][sum_name("y", piece)].tobytes() == first.tobytes()


@pytest.mark.parametrize(("exchange", "messages"), [("ring", 12), ("star", 4)])
def test_the_number_of_messages(exchange: Exchange, messages: int) -> None:
    """D devices: 2 · D · (D - 1) messages in a ring, 2 · (D - 1) through the first."""
    programs = sum_programs("y", ("a", "b", "c"), (1, 1, 1), exchange)
    assert sum(isinstance(item, Send) for items in programs.values() for item in items) == messages
