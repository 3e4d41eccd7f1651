from __future__ import annotations

import numpy as np
import pytest

from partc.format.messages import Placed
from partc.runtime.client.results import Timings
from tests.living.stalls import Stall, stalls, usual_s


def timings(started: list[float], epochs: list[int]) -> Timings:
    return Timings(("started_s", "epoch"), np.array([started, epochs], float).T)


def moved(epoch: int, steps: int = 0) -> Placed:
    return Placed(ticket=bytes(16), epoch=epoch, seconds=0.5, stopped_s=0.25, steps=steps)


ONE = timings([0.0, 1.0, 2.0, 7.0, 8.0], [0, 0, 0, 3, 3])


def test_a_move_costs_the_gap_between_two_steps() -> None:
    assert stalls([moved(3, steps=2)], [ONE]) == [Stall(5.0, 1.0, 0.25, 2)]


def test_of_several_requests_the_longest_gap_counts() -> None:
    other = timings([0.0, 2.0, 9.0, 11.0], [0, 0, 3, 3])
    assert stalls([moved(3)], [ONE, other]) == [Stall(7.0, 2.0, 0.25, 0)]


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_move_that_no_request_lived_through(epoch: int) -> None:
    assert stalls([moved(epoch)], [ONE]) == []


def test_a_request_that_began_after_the_move() -> None:
    assert stalls([moved(3)], [timings([7.0, 8.0], [3, 3])]) == []


def test_the_usual_time_of_a_step() -> None:
    assert usual_s(ONE) == 1.0
    assert usual_s(timings([0.0, 4.0, 5.0, 6.0], [0, 0, 1, 1]), last_epoch=True) == 1.0
    assert usual_s(timings([0.0], [0])) == 0.0
