"""The balancer of a ring, from its states to placements."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from partc.balance.artifacts import Artifacts, read_artifacts
from partc.balance.order import Order
from partc.balance.pauses import COOL_DOWN_S, RETURN_COOL_DOWNS
from partc.balance.ring import RingBalancer, moved_text
from partc.format.placement import Stages, stages_of
from partc.format.readings import LimitName, Readings
from partc.format.status import DeviceStatus, RingStatus, Steps, Vitals, Work
from tests.balance.builds import WITHOUT, write_build

PLANNED = {"phone": 0.002, "board": 0.001, "old": 0.004}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return read_artifacts(write_build(tmp_path_factory.mktemp("builds") / "build"))


def state(
    stages: Stages,
    steps: int,
    slower: Mapping[str, float] | None = None,
    reached: Mapping[str, tuple[LimitName, ...]] | None = None,
    epoch: int = 0,
) -> RingStatus:
    """A ring whose devices compute as planned, or so many times slower."""
    seconds = {
        stage.device: len(stage.indices) * PLANNED[stage.device] * (slower or {}).get(stage.device, 1.0)
        for stage in stages
    }
    devices = tuple(
        DeviceStatus(
            device=stage.device,
            submodules=(stage.submodules,),
            vitals=Vitals(
                readings=Readings(),
                reached=(reached or {}).get(stage.device, ()),
                work=(Work("part", "prefill", steps, seconds[stage.device]),),
            ),
        )
        for stage in stages
    )
    took = Steps("prefill", steps, sum(seconds.values()) + 0.0017)
    return RingStatus(epoch=epoch, placement="", steps=(took,), tokens_left=10_000, devices=devices)


def orders(balancer: RingBalancer, stages: Stages, slower: Mapping[str, float], windows: int) -> list[Order]:
    """The orders after so many windows."""
    found = [balancer.on_status(state(stages, 32 * k, slower), float(k)) for k in range(1, windows + 1)]
    return [order for order in found if order is not None]


def test_a_throttled_device_gives_what_lies_elsewhere(artifacts: Artifacts) -> None:
    (order,) = orders(RingBalancer(artifacts), artifacts.stages, {"old": 3.0}, 5)
    assert order.placement == artifacts.place(stages_of(WITHOUT["old"]))
    assert order.text.startswith("layer 2 from old to board: 31.7 ms → ")
    assert order.text.endswith("% less")


def test_a_ring_as_planned_is_left_alone(artifacts: Artifacts) -> None:
    best = artifacts.place(stages_of(WITHOUT["old"]))
    assert orders(RingBalancer(artifacts), best.stages["prefill"], {}, 10) == []


def test_one_order_is_out_at_a_time(artifacts: Artifacts) -> None:
    balancer = RingBalancer(artifacts)
    assert len(orders(balancer, artifacts.stages, {"old": 3.0}, 20)) == 1


def test_a_trial_that_fails_is_taken_back(artifacts: Artifacts) -> None:
    balancer = RingBalancer(artifacts)
    orders(balancer, artifacts.stages, {"old": 3.0}, 3)
    balancer.placed(0.2, 3.5)
    after = stages_of(WITHOUT["old"])
    order = balancer.on_status(state(after, 32, {"board": 20.0}, epoch=1), 5.0)
    assert order is not None
    assert order.placement == artifacts.compiled
    assert "the move made it slower" in order.text


def test_a_limit_moves_at_once(artifacts: Artifacts) -> None:
    ring = state(artifacts.stages, 32, reached={"old": ("battery",)})
    order = RingBalancer(artifacts).on_status(ring, 1.0)
    assert order is not None
    assert order.text.startswith("layer 2 from old to board: old: battery 0% (limit 0%)")


def test_moves_are_told_by_layers(artifacts: Artifacts) -> None:
    before, after = (stages_of(list(names)) for names in ("aabbcc", "abbbbc"))
    assert moved_text(artifacts.shape, before, after) == "submodule 1 from a to b, submodule 4 from c to b"


def test_a_ring_that_serves_moves_for_requests_that_nobody_knows_of_yet(artifacts: Artifacts) -> None:
    """Between two short requests there are hardly any tokens left."""

    def asked(goes_on: bool) -> int:
        balancer = RingBalancer(artifacts, goes_on=goes_on)
        states = [
            replace(state(artifacts.stages, 320 * k, {"old": 3.0}), tokens_left=1) for k in range(1, 20)
        ]
        return sum(balancer.on_status(each, float(k)) is not None for k, each in enumerate(states, start=1))

    assert (asked(goes_on=False), asked(goes_on=True)) == (0, 1)


def test_a_move_by_hand_is_not_taken_back_at_once(artifacts: Artifacts) -> None:
    """The best placement by the plan comes back after ten cool-downs, not after three windows."""
    best, by_hand = stages_of(WITHOUT["old"]), artifacts.stages
    balancer = RingBalancer(artifacts)
    assert balancer.on_status(state(best, 32), 0.0) is None
    slower = {"old": 3.0}
    states = [replace(state(by_hand, 32 * k, slower, epoch=1), moves=1) for k in range(1, 60)]
    at = [10.0 * k for k, each in enumerate(states, start=1) if balancer.on_status(each, 10.0 * k)]
    assert at[0] > RETURN_COOL_DOWNS * COOL_DOWN_S


def test_its_own_moves_are_not_taken_for_moves_by_hand(artifacts: Artifacts) -> None:
    """It goes on as if the source did not count moves."""
    after = stages_of(WITHOUT["old"])

    def times(moves: int) -> list[float]:
        balancer = RingBalancer(artifacts)
        orders(balancer, artifacts.stages, {"old": 3.0}, 3)
        balancer.placed(0.2, 3.5)
        states = [replace(state(after, 32 * k, {"board": 3.0}, epoch=1), moves=moves) for k in range(1, 60)]
        return [10.0 * k for k, each in enumerate(states, start=1) if balancer.on_status(each, 10.0 * k)]

    assert times(1) == times(0) != []
