"""Steps and values, held against the placement."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.message_parts import Likely, Opening, Row, Sampling, TensorSpec
from partc.format.messages import Data
from partc.format.role import Role
from partc.runtime.core.step import (
    Step,
    apart,
    check_sizes,
    check_specs,
    check_step,
    rows_of,
    step_of,
    together,
)
from tests.runtime.bundles import HIDDEN, LENGTH
from tests.runtime.core.roles import changed, graph, roles

OPENING = Opening(7, Sampling(seed=5), True)
STEP = Step(7, 1, 0, "prefill", {"batch": 2, "sequence": 3}, (0, 0), (3, 1), OPENING)
SIZE = 2 * 3 * HIDDEN * 4


@pytest.fixture
def role() -> Role:
    return roles()["b"]


def data_of(step: Step, **changes: Any) -> Data:
    facts: dict[str, Any] = {
        "session": 9,
        "epoch": 0,
        "seq": 0,
        "phase": step.phase,
        "dims": dict(step.dims),
        "rows": rows_of(step, 3),
        "values": (),
        "open": () if step.opening is None else (step.opening,),
    }
    return Data(**{**facts, **changes})


# -- rows


def test_rows_round_trip(role: Role) -> None:
    """Slot 1 of a model of three sequences a request begins with row 3."""
    assert rows_of(STEP, 3) == (Row(7, 3, 0, 0, 3), Row(7, 4, 0, 0, 1))
    assert step_of(data_of(STEP), role) == STEP
    later = replace(STEP, step=1, phase="decode", opening=None)
    assert step_of(data_of(later), role) == later


def test_a_step_of_tensors_has_one_row() -> None:
    step = Step(7, 0, 0, "prefill", {"rows": 2}, opening=OPENING)
    assert rows_of(step, 1) == (Row(7, 0, 0, 0, 0),)
    assert step_of(data_of(step, rows=rows_of(step, 1)), graph()) == step


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": (Row(7, 3, 0, 0, 1), Row(8, 4, 0, 0, 1))}, "row 4 of step 0 does not belong to request 7"),
        ({"rows": (Row(7, 3, 0, 0, 1), Row(7, 4, 1, 0, 1))}, "row 4 of step 1"),
        ({"rows": (Row(7, 3, 0, 0, 1), Row(7, 5, 0, 0, 1))}, "row 5"),
        ({"rows": (Row(7, 4, 0, 0, 1),)}, "row 4"),
        ({"rows": tuple(Row(7, 3 + index, 0, 0, 1) for index in range(4))}, "4 sequences, at most 3"),
        ({"open": (OPENING, OPENING)}, "opens another one"),
        ({"open": (replace(OPENING, request=8),)}, "a message of request 7 opens another one"),
    ],
)
def test_rows_that_are_not_one_request_s(role: Role, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        step_of(data_of(STEP, **changes), role)


# -- rows of several requests

TOKEN = Step(7, 1, 4, "decode", {"batch": 1, "sequence": 1}, (6,), (1,))
OTHERS = (
    replace(TOKEN, request=9, slot=0, step=1, position=(3,)),
    replace(TOKEN, request=8, slot=2, position=(5,)),
)


@pytest.fixture
def sharing(role: Role) -> Role:
    """Three sequences a request, three requests, and three of them in a step."""
    return changed(role, model=structs.replace(role.model, max_requests=3, step_requests=3))


def test_a_shared_step_round_trips(sharing: Role) -> None:
    """Each request has the first row of its slot."""
    step = together([TOKEN, *OTHERS])
    rows = (Row(7, 3, 4, 6, 1), Row(9, 0, 1, 3, 1), Row(8, 6, 4, 5, 1))
    assert rows_of(step, 3) == rows
    assert step_of(data_of(step), sharing) == step
    assert apart(step) == [TOKEN, *OTHERS]
    assert (step.end, step.dims["batch"]) == ((7, 4, 6), 3)
    check_step(step, sharing)


def test_only_the_rows_that_want_probabilities_have_them() -> None:
    told = (Likely(1, -0.5),)
    step = replace(together([TOKEN, replace(TOKEN, request=8, slot=2)]), likely=((), told))
    assert [own.likely for own in apart(step)] == [(), (told,)]


def test_a_step_that_nobody_shares_is_its_request_s() -> None:
    assert together([TOKEN]) == TOKEN
    assert apart(TOKEN) == [TOKEN]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phase": "prefill"}, "do not share a step of 'prefill'"),
        ({"open": (OPENING,)}, "do not share a step"),
        (
            {"rows": tuple(Row(request, 3 * request, 4, 6, 1) for request in range(4))},
            "4 requests do not share",
        ),
        ({"rows": (Row(7, 3, 4, 6, 1), Row(8, 1, 4, 5, 1))}, "row 1 is not the first of a slot"),
        ({"rows": (Row(7, 3, 4, 6, 1), Row(8, 9, 4, 5, 1))}, "row 9 is not the first of a slot"),
        ({"rows": (Row(7, 3, 4, 6, 1), Row(8, 0, 0, 0, 1))}, "the step that opens request 8 is shared"),
        ({"rows": (Row(7, 3, 4, 6, 1), Row(8, 3, 4, 5, 1))}, "a request or a slot has two rows"),
        (
            {"rows": (Row(7, 3, 4, 6, 1), Row(7, 0, 4, 5, 1), Row(8, 6, 4, 5, 1))},
            "a request or a slot has two rows",
        ),
    ],
)
def test_rows_that_share_no_step(sharing: Role, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        step_of(data_of(together([TOKEN, *OTHERS]), **changes), sharing)


def test_steps_are_shared_where_the_build_says_so(role: Role) -> None:
    with pytest.raises(RunError, match="row 0 of step 1 does not belong to request 7"):
        step_of(data_of(together([TOKEN, OTHERS[0]])), role)


# -- steps of several tokens

NEXT = [replace(TOKEN, step=TOKEN.step + n, position=(TOKEN.position[0] + n,)) for n in range(1, 4)]


@pytest.fixture
def guessing(role: Role) -> Role:
    """Three sequences a request, and up to four tokens of one in a step."""
    return changed(
        role, model=structs.replace(role.model, max_requests=3, step_tokens=((2, 1100), (4, 1300)))
    )


def test_a_step_of_several_tokens_round_trips(guessing: Role) -> None:
    step = together([TOKEN, *NEXT])
    assert rows_of(step, 3) == tuple(Row(7, 3, 4 + n, 6 + n, 1) for n in range(4))
    assert step_of(data_of(step), guessing) == step
    assert apart(step) == [TOKEN, *NEXT]
    assert (step.rows, step.further, step.others, step.end) == (4, 3, (), (7, 8, 9, 10))
    check_step(step, guessing)
    assert step.same_as(together([TOKEN, *NEXT])) and not step.same_as(together([TOKEN, *NEXT[:2]]))


def test_tokens_of_a_step_are_behind_one_another(guessing: Role) -> None:
    good = rows_of(together([TOKEN, *NEXT]), 3)
    step_of(data_of(TOKEN, rows=good), guessing)
    for place, wrong in [
        (1, Row(8, 3, 5, 7, 1)),  # of another request
        (1, Row(7, 6, 5, 7, 1)),  # in another slot
        (2, Row(7, 3, 7, 8, 1)),  # a step is left out
        (2, Row(7, 3, 6, 9, 1)),  # a position is
        (3, Row(7, 3, 7, 9, 1, 7)),  # of another branch
    ]:
        with pytest.raises(RunError, match=f"step {wrong.step} does not follow step 4 of request 7"):
            step_of(data_of(TOKEN, rows=(*good[:place], wrong, *good[place + 1 :])), guessing)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phase": "prefill"}, "a step of 'prefill' has 4 tokens of a request, at most 4"),
        ({"open": (OPENING,)}, "has 4 tokens"),
        ({"rows": tuple(Row(7, 3, 4 + n, 6 + n, 1) for n in range(5))}, "5 tokens of a request, at most 4"),
        ({"rows": tuple(Row(7, 3, n, n, 1) for n in range(2))}, "step 0 does not follow step 0"),
    ],
)
def test_steps_that_take_no_several_tokens(guessing: Role, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        step_of(data_of(together([TOKEN, *NEXT]), **changes), guessing)


def test_several_tokens_go_where_the_build_says_so(role: Role, guessing: Role) -> None:
    with pytest.raises(RunError, match="row 3 of step 5 does not belong to request 7"):
        step_of(data_of(together([TOKEN, NEXT[0]])), role)
    with pytest.raises(RunError, match="batch is 4, at most 1"):
        check_step(together([TOKEN, *NEXT]), changed(role, model=structs.replace(role.model, max_requests=3)))
    check_step(together([TOKEN, *NEXT]), guessing)
    with pytest.raises(RunError, match=f"1 of 1 tokens at position {LENGTH}"):
        check_step(replace(together([TOKEN, NEXT[0]]), position=(LENGTH - 1, LENGTH)), guessing)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": {"batch": 4, "sequence": 1}}, "batch is 4, at most 3"),
        ({"dims": {"batch": 2, "sequence": 1}}, "2 sequences with 3 positions and 3 lengths"),
        ({"position": (6, 3)}, "3 sequences with 2 positions"),
        ({"position": (6, LENGTH, 5)}, f"1 of 1 tokens at position {LENGTH}"),
        ({"length": (1, 0, 1)}, r"rows of \[1, 0, 1\] tokens in a step of 3 rows"),
        (
            {"length": (2, 2, 2), "dims": {"batch": 3, "sequence": 2}},
            r"rows of \[2, 2, 2\] tokens in a step of 3 rows",
        ),
    ],
)
def test_sizes_of_a_shared_step(sharing: Role, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        check_step(replace(together([TOKEN, *OTHERS]), **changes), sharing)


def test_two_devices_mean_other_shared_steps() -> None:
    step = together([TOKEN, *OTHERS])
    assert step.same_as(together([TOKEN, *OTHERS]))
    assert not step.same_as(together([TOKEN, replace(OTHERS[0], request=6), OTHERS[1]]))


# -- steps


def test_the_end_of_a_step() -> None:
    assert STEP.end == (3, 1)


def test_two_devices_mean_the_same_step_with_and_without_its_opening() -> None:
    assert STEP.same_as(replace(STEP, opening=None))
    assert not STEP.same_as(replace(STEP, slot=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot": 3}, "slot 3, there are 3"),
        ({"phase": "decode"}, "no step of 'decode'"),
        ({"phase": "warmup"}, "no step of 'warmup'"),
        ({"phase": "chunk"}, "no step of 'chunk'"),
        ({"step": 1}, "no step of 'prefill'"),
        ({"opening": None}, "opened by its step 0"),
        ({"dims": {"batch": 4, "sequence": 3}}, "batch is 4, at most 3"),
        ({"dims": {"batch": 2, "sequence": LENGTH + 1}}, f"sequence is {LENGTH + 1}"),
        ({"dims": {"batch": 2, "width": 1}}, "width is 1, at most 0"),
        ({"position": (0,)}, "1 positions"),
        ({"length": (3, 4)}, "4 of 3 tokens"),
        ({"length": (3, 0)}, "0 of 3 tokens"),
        ({"position": (0, LENGTH - 2)}, "max_sequence"),
    ],
)
def test_steps_beyond_the_plan(role: Role, changes: dict[str, Any], message: str) -> None:
    check_step(STEP, role)
    with pytest.raises(RunError, match=message):
        check_step(replace(STEP, **changes), role)


@pytest.mark.parametrize(
    ("step", "phase", "message"),
    [
        (0, "decode", "no step of 'decode'"),
        (0, "whole", "no step of 'whole'"),
        (3, "chunk", None),
        (3, "prefill", None),
    ],
)
def test_which_phases_a_step_may_have(step: int, phase: str, message: str | None) -> None:
    """Where prompts come in parts."""
    opening = None if step else Opening(0, Sampling())
    made = Step(0, 0, step, phase, {"batch": 1, "sequence": 1}, (0,), (1,), opening)
    if message is None:
        check_step(made, roles(prompt_chunk=4)["a"])
        return
    with pytest.raises(RunError, match=message):
        check_step(made, roles(prompt_chunk=4)["a"])


# -- values


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TensorSpec("hidden_9", "float32", (2, 3, HIDDEN)), "does not belong"),
        (TensorSpec("hidden_1", "float16", (2, 3, HIDDEN)), "is float16, the plan says float32"),
        (TensorSpec("hidden_1", "float32", (2, 3, HIDDEN + 1)), "has the shape"),
        (TensorSpec("hidden_1", "float32", (2, 2, HIDDEN)), "has the shape"),
    ],
)
def test_values_unlike_the_plan(role: Role, spec: TensorSpec, message: str) -> None:
    check_specs([TensorSpec("hidden_1", "float32", (2, 3, HIDDEN))], role.types, STEP.dims)
    with pytest.raises(RunError, match=message):
        check_specs([spec], role.types, STEP.dims)


def test_values_whose_size_nobody_tells(role: Role) -> None:
    with pytest.raises(RunError, match="needs the size of 'sequence'"):
        check_specs([TensorSpec("hidden_1", "float32", (2, 3, HIDDEN))], role.types, {"batch": 2})


@pytest.mark.parametrize("sizes", [[SIZE - 1], [SIZE + 4], [0]])
def test_bytes_unlike_the_announced(sizes: list[int]) -> None:
    spec = TensorSpec("hidden_1", "float32", (2, 3, HIDDEN))
    check_sizes([spec], [SIZE])
    with pytest.raises(RunError, match=f"has {sizes[0]} bytes"):
        check_sizes([spec], sizes)
    with pytest.raises(RunError, match="1 tensors are announced, 2 came"):
        check_sizes([spec], [SIZE, SIZE])
