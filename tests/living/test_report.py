from __future__ import annotations

from tests.living.field import Outcome
from tests.living.memory import MemoryUse, allowed, memory_uses
from tests.living.models import SUBJECTS
from tests.living.report import report
from tests.living.stalls import Stall
from tests.living.trials import drawn


def lines(*outcomes: Outcome, memory: tuple[MemoryUse, ...] = ()) -> list[str]:
    return report(outcomes, memory).splitlines()


def lost(victim: str, token_s: float, promised_s: float | None) -> Outcome:
    return Outcome(0, victim, 5, "right", 0.5, token_s, promised_s)


def test_each_device_is_disturbed_as_often_as_the_others() -> None:
    found = [drawn(0, number, SUBJECTS["storyteller"], "bcd", 1).victim for number in range(100)]
    assert sorted(map(found.count, "bcd")) == [33, 33, 34]


def test_a_prediction_beside_what_was_measured() -> None:
    (line,) = [
        line for line in lines(lost("b", 0.010, 0.009), lost("b", 0.0125, 0.009)) if line.startswith("b:")
    ]
    assert line == "b: 2 trials; 9.00 ms per token predicted, 11.25 ms measured: predicted / measured 0.81"


def test_a_device_whose_loss_has_no_plan() -> None:
    assert "c: 1 trials" in lines(lost("c", 0.010, None))


def test_moves_are_counted_and_their_stalls_told() -> None:
    one = Outcome(0, "b", 5, "right", stalls=[Stall(0.030, 0.010, 0.004, 0), Stall(0.050, 0.010, 0.006, 1)])
    assert lines(one, Outcome(1, "c", 5, "right"))[3:] == [
        "2 moves of requests in flight, in 2 trials",
        "from step to step around a move: median 40.0 ms, worst 50.0 ms",
        "as parts of the usual time: median 4.0, worst 5.0",
        "requests stood still: median 5.0 ms, worst 6.0 ms",
        "steps computed again: median 0.5, worst 1",
    ]


def test_requests_that_saw_the_disturbance_are_counted() -> None:
    hit = Outcome(0, "b", 5, "right", requests=2, carried=1)
    missed = Outcome(1, "c", 5, "right", requests=2)
    assert lines(hit, missed)[1] == (
        "1 of 4 requests, in 1 of 2 trials, were in flight when a placement came into force"
    )


def test_a_trial_that_went_wrong_is_told_with_its_number() -> None:
    wrong = Outcome(17, "b", 5, "wrong tokens", told="token 3 of 9 differs")
    assert lines(wrong)[-1] == "--only 17: b after token 5: wrong tokens: token 3 of 9 differs"


def test_memory_may_be_a_part_or_some_bytes_above_the_plan() -> None:
    assert allowed(1e9) == 1.05e9
    assert allowed(1e6) == 11e6
    small, large = memory_uses({"a": 1e6, "b": 1e9}, {"a": 52e6, "b": 1.04e9}, base=40e6)
    assert not small.is_kept
    assert large.is_kept
    assert lines(memory=(small,)) == ["memory of a: 1.0 MB planned, 12.0 MB at most: MORE THAN PLANNED"]
