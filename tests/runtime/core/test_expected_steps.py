"""Headers of steps that are expected: the same as of others, and nothing is taken on trust."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.frames import to_frame
from partc.format.message_parts import Opening, Row, TensorSpec
from partc.runtime.core.actions import Delivered
from partc.runtime.core.step import Step
from tests.runtime.bundles import HIDDEN, LENGTH
from tests.runtime.core.link_end import ZEROS, End, data, failure, later
from tests.runtime.core.roles import GREEDY, step_of


def expecting() -> End:
    """Steps 0 and 1 of request 0 came, and step 2 is expected."""
    end = End()
    end.data(0)
    (first,) = end.receive(later(1, 1), [to_frame(ZEROS)])
    assert isinstance(first, Delivered)
    end.links.headers.expect(first.step.next_token())
    return end


def test_a_step_that_is_expected() -> None:
    (delivered,) = expecting().receive(later(2, 2), [to_frame(ZEROS)])
    assert isinstance(delivered, Delivered)
    step = Step(0, 0, 2, "decode", {"batch": 1, "sequence": 1}, (2,), (1,))
    assert (delivered.peer, delivered.step) == ("a", step)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": (Row(0, 0, 2, LENGTH, 1),)}, "max_sequence"),
        ({"rows": (Row(0, 9, 2, 2, 1),)}, "slot 3"),
        ({"phase": "prefill"}, "no step of 'prefill'"),
        ({"dims": {"batch": 1, "sequence": 1, "width": 1}}, "width is 1"),
        ({"dims": {"batch": 1, "sequence": 2}}, "has the shape"),
        ({"dims": {}}, "needs the size of|1 tokens|has the shape"),
        ({"open": (Opening(0, GREEDY),)}, "opened by its step 0"),
        ({"values": (TensorSpec("hidden_1", "float16", (1, 1, HIDDEN)),)}, "is float16"),
    ],
)
def test_nothing_is_taken_on_trust_because_a_step_is_expected(changes: dict[str, Any], message: str) -> None:
    end = expecting()
    failed = failure(end.receive(replace(later(2, 2), **changes), [to_frame(ZEROS)]))
    with pytest.raises(RunError, match=message):
        raise failed.error


def test_another_step_than_the_expected_one() -> None:
    end = expecting()
    (delivered,) = end.receive(replace(later(2, 2), rows=(Row(0, 0, 2, 9, 1),)), [to_frame(ZEROS)])
    assert isinstance(delivered, Delivered)
    assert delivered.step.position == (9,)


def test_frames_are_held_against_the_header_of_an_expected_step() -> None:
    end = expecting()
    assert "has 4 bytes" in failure(end.receive(later(2, 2), [b"1234"])).error.message


def test_no_step_beyond_the_plan_is_expected() -> None:
    end = End()
    end.links.headers.expect(step_of(0, LENGTH - 2))
    failed = failure(
        end.receive(
            data(0, phase="decode", rows=(Row(0, 0, LENGTH - 2, LENGTH, 1),), open=()), [to_frame(ZEROS)]
        )
    )
    assert "max_sequence" in failed.error.message


def test_the_header_of_an_expected_step_is_that_of_its_message() -> None:
    """For the next step as well as for another one of the same request."""
    prepared, other = End(), End()
    for end in (prepared, other):
        end.link("c")
    for step in (step_of(0, 1), step_of(0, 1, off=1), step_of(0, 1, slot=2), step_of(0, 2)):
        prepared.links.headers.expect(step_of(0, 1))
        assert prepared.links.send("c", step, ("hidden_2",), [ZEROS]) == other.links.send(
            "c", step, ("hidden_2",), [ZEROS]
        )
