"""Headers of `data`: every one is held against the placement, however like the one before it is."""

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
from tests.runtime.core.link_end import ZEROS, End, failure, later
from tests.runtime.core.roles import GREEDY


def at_step_2() -> End:
    """Steps 0 and 1 of request 0 came, and step 2 is next."""
    end = End()
    end.data(0)
    (first,) = end.receive(later(1, 1), [to_frame(ZEROS)])
    assert isinstance(first, Delivered)
    return end


def test_the_step_that_follows() -> None:
    (delivered,) = at_step_2().receive(later(2, 2), [to_frame(ZEROS)])
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
def test_nothing_is_taken_on_trust_because_steps_before_were_right(
    changes: dict[str, Any], message: str
) -> None:
    end = at_step_2()
    failed = failure(end.receive(replace(later(2, 2), **changes), [to_frame(ZEROS)]))
    with pytest.raises(RunError, match=message):
        raise failed.error


def test_another_step_than_the_one_that_follows() -> None:
    end = at_step_2()
    (delivered,) = end.receive(replace(later(2, 2), rows=(Row(0, 0, 2, 9, 1),)), [to_frame(ZEROS)])
    assert isinstance(delivered, Delivered)
    assert delivered.step.position == (9,)


def test_frames_are_held_against_the_header() -> None:
    end = at_step_2()
    assert "has 4 bytes" in failure(end.receive(later(2, 2), [b"1234"])).error.message
