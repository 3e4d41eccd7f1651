"""One request at the source: nothing that a client sends ends the source, it is a request or an error of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from partc.errors import InternalError, RunError
from partc.format.build import TensorType
from partc.format.dtypes import DTYPES, Array
from partc.format.frames import to_frame
from partc.format.message_parts import Opening, Sampling, TensorSpec
from partc.format.messages import Crossed, Submit
from partc.format.role import Role
from partc.runtime.core.liveness import Progress
from partc.runtime.core.source import job as job_module
from partc.runtime.core.source.job import FOLLOWING, Call, Job, State
from partc.runtime.core.source.reading import read_job
from tests.runtime.bundles import EOS, LENGTH
from tests.runtime.core.roles import GREEDY, TICKET, changed, encoder, graph, roles, submit

PROMPT = [1, 2, 5, 7, 8, 9, 10, 11, 4, 16, 2]
CHUNK = 4


def read(message: Submit, frames: Sequence[memoryview] = (), role: Role | None = None) -> Job:
    return read_job(b"route", message, frames, role or roles()["a"], 7.0)


def read_arrays(arrays: Mapping[str, Array], role: Role) -> Job:
    specs = tuple(TensorSpec(name, array.dtype.name, array.shape) for name, array in arrays.items())
    return read(submit(values=specs), [to_frame(array) for array in arrays.values()], role)


# -- prompts


def test_prompts() -> None:
    """Right-padded to one length."""
    job = read(submit([1, 2, 5], [4], max_new_tokens=6, stop=(9,), trace=True))
    assert (job.origin, job.ticket, job.submitted, job.trace) == (b"route", TICKET, 7.0, True)
    assert job.inputs["input_ids"].tolist() == [[1, 2, 5], [4, 0, 0]]
    assert (job.dims, job.position, job.length) == ({"batch": 2, "sequence": 3}, (0, 0), (3, 1))
    assert (job.max_new_tokens, job.stop) == (6, frozenset((EOS, 9)))
    assert read(submit([1], ignore_eos=True)).stop == frozenset()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (submit(), "0 prompts in one request, at most 3"),
        (submit([1], [1], [1], [1]), "4 prompts in one request"),
        (submit([1], []), "prompt 2: the prompt is empty"),
        (submit([1] * (LENGTH - 1)), f"{LENGTH - 1} tokens and 2 new ones are more than max_sequence"),
        (submit([1], max_new_tokens=0), "max_new_tokens: at least one token"),
        (submit([17]), "prompt 1: token 17 is not below vocab_size, 17"),
        (submit([2**64 - 1]), "is not below vocab_size"),
        (submit([1], max_new_tokens=2**64 - 1), "more than max_sequence"),
        (submit(values=(TensorSpec("input_ids", "int64", (1, 1)),)), "takes prompts, not tensors"),
    ],
)
def test_prompts_beyond_the_model(message: Submit, expected: str) -> None:
    with pytest.raises(RunError) as caught:
        read(message, [memoryview(bytes(8))])
    assert expected in str(caught.value)
    assert caught.value.cause == "input"


@pytest.mark.parametrize("token", [17, 2**63, 2**64 - 1])
def test_known_tokens_beyond_the_model(token: int) -> None:
    with pytest.raises(RunError, match=f"known: token {token} is not below vocab_size, 17"):
        read(submit([1], known=((token,),)))


def test_token_ids_of_a_model_that_does_not_say_how_many_it_has() -> None:
    role = roles()["a"]
    unknown = changed(role, model=replace(role.model, vocab_size=None))
    assert read(submit([2**63 - 1]), role=unknown).inputs["input_ids"].tolist() == [[2**63 - 1]]
    with pytest.raises(RunError, match="not below"):
        read(submit([2**63]), role=unknown)


def test_prompts_of_a_model_of_tensors() -> None:
    with pytest.raises(RunError, match="takes tensors, not prompts"):
        read(submit([1]), role=graph())


# -- tensors


@given(shape=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2), max_size=4))
def test_any_shape(shape: list[int]) -> None:
    role = encoder()
    try:
        read_empty(shape, role)
    except RunError:
        return
    rows, width = shape
    assert rows <= role.dims["batch"]
    assert width <= role.dims["sequence"]


@pytest.mark.parametrize("shape", [(2**40, 2**40), (0, 2**63), (2**62, 0), (0, 2**31, 2**31, 2**31)])
def test_shapes_beyond_numpy(shape: tuple[int, ...]) -> None:
    """Sizes whose product overflows, or is 0 only because of one of them."""
    with pytest.raises(RunError):
        read_empty(shape, encoder())


def read_empty(shape: Sequence[int], role: Role) -> None:
    values = tuple(TensorSpec(name, "int64", tuple(shape)) for name in role.inputs)
    read(submit(values=values), [memoryview(b"") for _ in values], role)


@pytest.mark.parametrize("lengths", [[np.nan], [np.inf], [1.5], [True], [2**63], [-1], [], [1, 1]])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bfloat16"}))
def test_any_lengths(lengths: list[Any], dtype: str) -> None:
    with np.errstate(all="ignore"):
        length = np.array(lengths, np.float64).astype(DTYPES[dtype])
    role = encoder()
    arrays: dict[str, Array] = {name: np.ones((1, 3), np.int64) for name in role.inputs}
    try:
        job = read_arrays({**arrays, "length": length}, role)
    except RunError:
        return
    assert job.length in {(1,), (2,), (3,)}


def test_lengths_are_those_of_the_tensors_where_none_are_given() -> None:
    role = encoder()
    job = read_arrays({name: np.ones((2, 3), np.int64) for name in role.inputs}, role)
    assert (job.position, job.length) == ((0, 0), (3, 3))


# -- steps


def calls_of(job: Job, role: Role | None = None, number: int = 0) -> list[Call]:
    """The steps that a job begins with."""
    job.open(number, number, role or in_parts())
    return list(job.calls())


def job_of(*prompts: list[int]) -> Job:
    return read(submit(*prompts), role=in_parts())


def in_parts() -> Role:
    return roles(prompt_chunk=CHUNK)["a"]


def test_a_prompt_in_nearly_equal_parts() -> None:
    steps = calls_of(job_of(PROMPT), number=2)
    assert [(s.step, s.phase, s.position, s.length, s.dims["sequence"]) for s, _ in steps] == [
        (0, "chunk", (0,), (3,), 3),
        (1, "chunk", (3,), (4,), 4),
        (2, "prefill", (7,), (4,), 4),
    ]
    assert [step.opening for step, _ in steps] == [Opening(2, GREEDY), None, None]
    assert {(step.request, step.slot) for step, _ in steps} == {(2, 2)}
    assert np.concatenate([i["input_ids"] for _, i in steps], axis=1).tolist() == [PROMPT]


def test_short_prompts_and_batches_go_whole() -> None:
    for job in (job_of(PROMPT[:CHUNK]), job_of(PROMPT, PROMPT)):
        whole = job.inputs
        ((step, inputs),) = calls_of(job)
        assert (step.phase, step.step) == ("prefill", 0)
        assert inputs is whole


def test_a_build_without_a_size_has_no_parts() -> None:
    role = roles()["a"]
    assert set(role.programs) == {"prefill", "decode", "replay"}
    ((step, _),) = calls_of(job_of(PROMPT), role)
    assert step.phase == "prefill"


def test_inputs_that_are_not_of_tokens_go_to_every_part() -> None:
    role = in_parts()
    style = TensorType("float32", ("batch", 2))
    role = changed(role, inputs={**role.inputs, "style": style})
    job = job_of(PROMPT)
    job.inputs = {**job.inputs, "style": np.ones((1, 2), np.float32)}
    assert [inputs["style"].shape for _, inputs in calls_of(job, role)] == [(1, 2)] * 3


# -- tokens


def test_tokens_until_every_sequence_has_ended() -> None:
    job = read(submit([1], [2], max_new_tokens=3))
    assert job.take([5, 6]) == (5, 6)
    assert job.take([EOS, 6]) == (EOS, 6)
    assert (job.finish, job.finished) == (["stop", ""], False)
    assert job.take([9, 6]) == (None, 6)
    assert (job.tokens, job.finish, job.finished) == ([[5, EOS], [6, 6, 6]], ["stop", "length"], True)


def test_a_job_alone() -> None:
    """Its fields are enough: no message and no model."""
    job = Job(b"", TICKET, Sampling(), False, 0.0, Progress(0.0), max_new_tokens=1)
    job.tokens, job.finish = [[]], [""]
    assert job.take([4]) == (4,)
    assert job.finished


# -- steps that are computed again


def drawn(job: Job, *tokens: int) -> None:
    """Tokens have come round the ring."""
    for token in tokens:
        job.take([token])
        job.drawn.append(np.array([token]))


def running(prompt: list[int], *tokens: int, prompt_chunk: int | None = None) -> Job:
    """A request that has come so far that these tokens are known, and whose next step is under way."""
    role = roles(prompt_chunk=prompt_chunk)["a"] if prompt_chunk else roles()["a"]
    job = read(submit(prompt, max_new_tokens=12), role=role)
    calls_of(job, role)
    for token in tokens:
        drawn(job, token)
        list(job.calls())
    return job


def shapes(calls: Sequence[Call]) -> list[tuple[int, str, tuple[int, ...], list[list[int]]]]:
    """(step, phase, position, tokens) of each."""
    return [(step.step, step.phase, step.position, inputs["input_ids"].tolist()) for step, inputs in calls]


@pytest.mark.parametrize(
    ("step", "phase", "ends"),
    [(0, "", ()), (1, "prefill", ((3,),)), (2, "decode", ((3,),)), (4, "decode", ((3,),))],
)
def test_a_step_to_go_on_from(step: int, phase: str, ends: tuple[tuple[int, ...], ...]) -> None:
    """It comes with all that a device must know that has not seen the steps before."""
    job = running([1, 2, 5], 7, 8, 9, 10)
    assert job.reached == 4
    resumption = job.rewind(step, roles()["a"])
    assert (resumption.step, resumption.phase, resumption.ends) == (step, phase, ends)
    assert (resumption.request, resumption.slot, job.replayed) == (0, 0, 4 - step)


def test_forced_steps_have_the_shapes_of_the_first_time() -> None:
    job = running([1, 2, 5], 7, 8, 9)
    before = shapes([job._call(step) for step in range(4)])
    job.rewind(0, roles()["a"])
    assert shapes(list(job.calls())) == [(0, "prefill", (0,), [[1, 2, 5]])]
    again = shapes(list(job.calls()))
    assert again == [(1, "replay", (3,), [[7]]), (2, "decode", (4,), [[8]])], (
        "the last known token is compared"
    )
    assert [(step, position, ids) for step, _, position, ids in before[1:3]] == [
        (step, position, ids) for step, _, position, ids in again
    ]
    assert shapes(list(job.calls())) == [(3, "decode", (5,), [[9]])]


def test_every_eighth_forced_step_is_waited_for() -> None:
    """A device keeps room for so many that it has not come to."""
    job = running([1], *range(3, 14))
    job.rewind(1, roles()["a"])
    assert [[step.phase for step, _ in job.calls()] for _ in range(3)] == [
        ["replay"] * 7 + ["decode"],
        ["replay", "decode"],
        ["decode"],
    ]


def test_a_request_goes_on_in_the_middle_of_its_forced_steps() -> None:
    """Another loss while they are computed: those that every device has need not be computed a third time."""
    job = running([1], *range(3, 14))
    job.rewind(1, roles()["a"])
    list(job.calls())
    job.rewind(5, roles()["a"])
    assert [step.step for step, _ in job.calls()] == [5, 6, 7, 8]
    assert job.replayed == 10 + 6


def test_the_parts_of_a_prompt_are_steps_of_their_own() -> None:
    job = running(PROMPT, 7, prompt_chunk=CHUNK)
    assert job.reached == 3
    resumption = job.rewind(1, roles()["a"])
    assert (resumption.phase, resumption.ends) == ("chunk", ((3,),))
    assert [(step, phase) for step, phase, _, _ in shapes(list(job.calls()))] == [
        (1, "chunk"),
        (2, "prefill"),
    ]


def test_a_prompt_whose_token_is_not_known_has_not_reached_a_step() -> None:
    job = running([1, 2, 5])
    assert (job.reached, job.step) == (0, 0)
    assert job.rewind(0, roles()["a"]).ends == ()
    assert [phase for _, phase, _, _ in shapes(list(job.calls()))] == ["prefill"]


def test_what_a_client_is_told_again() -> None:
    """With the reasons for which sequences had ended by then."""
    job = read(submit([1], [2], max_new_tokens=2))
    for row in ([EOS, 6], [9, 7]):
        job.take(row)
        job.drawn.append(np.array(row))
    assert job.told(0) == ((EOS, 6), ("stop", ""))
    assert job.told(1) == ((None, 7), ("stop", "length"))


def test_tensors_of_a_traced_request_are_told_once() -> None:
    job = read(submit([1]))
    values = (TensorSpec("h", "float32", (1,)),)
    crossed = Crossed(request=0, device="b", peer="a", step=0, values=values)
    assert job.is_news(crossed)
    assert not job.is_news(crossed), "its step was computed again"
    assert job.is_news(Crossed(request=0, device="b", peer="a", step=1, values=values))
    assert job.is_news(Crossed(request=0, device="b", peer="a", step=0, values=()))


# -- tokens that are known


def test_known_tokens_are_forced() -> None:
    job = read(submit([1, 2], max_new_tokens=5, known=((7, 8),)))
    assert (job.tokens, job.step) == ([[7, 8]], 2)
    assert [step.phase for step, _ in calls_of(job, roles()["a"])] == ["prefill"]
    assert [step.phase for step, _ in job.calls()] == ["decode"]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (((7,), (8,)), "2 known answers for 1 prompts"),
        (((EOS, 7),), "end before their last one"),
        (((7, 8, 9, 10, 11),), "or are complete"),
    ],
)
def test_known_tokens_that_cannot_be(known: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(RunError, match=message):
        read(submit([1, 2], max_new_tokens=5, known=known))


def test_the_table_of_states_is_that_of_the_docstring() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in (job_module.__doc__ or "").splitlines() if line[:2] == "| "
    ]
    told = {State(row[0]): row[2].split(", ") if len(row) > 2 and row[2] else [] for row in rows[2:]}
    assert told == {state: [each.value for each in following] for state, following in FOLLOWING.items()}


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_request_goes_from_state_to_state_by_the_table(before: State, after: State) -> None:
    job = read(submit([1, 2]))
    job.state = before
    if after in FOLLOWING[before]:
        job.become(after)
        assert job.state is after
    else:
        with pytest.raises(InternalError, match=f"cannot be {after.value}"):
            job.become(after)
