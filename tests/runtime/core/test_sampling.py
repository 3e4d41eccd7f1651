from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from partc.errors import RunError
from partc.format.message_parts import Sampling
from partc.runtime.core.device.sampling import by_likelihood, sample

ROWS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(-20, 20, width=32)
)


def at(*positions: int) -> tuple[int, ...]:
    return positions


@given(ROWS)
def test_greedy_is_argmax(logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    tokens = sample(logits, Sampling(), at(*range(len(logits))))
    assert tokens.dtype == np.int64
    assert tokens.tolist() == np.argmax(logits, axis=-1).tolist()


@given(ROWS, st.integers(0, 2**64 - 1), st.integers(0, 10_000))
def test_a_row_does_not_depend_on_those_below(
    logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]], seed: int, position: int
) -> None:
    sampling = Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=seed)
    positions = range(position, position + len(logits))
    alone = sample(logits[:1], sampling, positions[:1])
    assert sample(logits, sampling, positions)[0] == alone[0]


@given(ROWS, st.integers(0, 1000))
def test_top_k_of_one_is_greedy(logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]], seed: int) -> None:
    positions = range(len(logits))
    greedy = sample(logits, Sampling(), positions)
    assert (
        sample(logits, Sampling(temperature=2.0, top_k=1, seed=seed), positions).tolist() == greedy.tolist()
    )
    assert (
        sample(logits, Sampling(temperature=2.0, top_p=1e-9, seed=seed), positions).tolist()
        == greedy.tolist()
    )


@given(ROWS, st.integers(0, 1000), st.sampled_from([5e-324, 1e-308, 1e-300]))
def test_at_next_to_no_temperature_it_is_the_likeliest(
    logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]], seed: int, temperature: float
) -> None:
    found = sample(logits, Sampling(temperature=temperature, seed=seed), range(len(logits)))
    assert np.array_equal(np.take_along_axis(logits, found[:, None], 1)[:, 0], logits.max(axis=1))


ANY = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-45]
)


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=ANY))
def test_tokens_are_sorted_as_a_stable_sort_does(
    logits: np.ndarray[tuple[int], np.dtype[np.float32]],
) -> None:
    right = np.argsort(-logits.astype(np.float64), kind="stable")
    assert by_likelihood(logits).tolist() == right.tolist()


def test_draws_follow_the_probabilities() -> None:
    probabilities = np.array([0.5, 0.3, 0.2])
    logits = np.log(probabilities)[None].astype(np.float32)
    draws = [int(sample(logits, Sampling(temperature=1.0, seed=1), at(index))[0]) for index in range(4000)]
    assert np.abs(np.bincount(draws, minlength=3) / 4000 - probabilities).max() < 0.03


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    logits = np.log(np.array([[0.4, 0.35, 0.15, 0.1]])).astype(np.float32)
    draws = {int(sample(logits, Sampling(1.0, top_p=0.7, seed=1), at(index))[0]) for index in range(300)}
    assert draws == {0, 1}


def test_equal_logits_keep_the_lowest_ids() -> None:
    logits = np.zeros((1, 10), np.float32)
    draws = {int(sample(logits, Sampling(1.0, top_k=3, seed=1), at(index))[0]) for index in range(300)}
    assert draws == {0, 1, 2}


def test_seed_row_and_position_matter() -> None:
    logits = np.zeros((2, 1000), np.float32)
    first = sample(logits, Sampling(1.0, seed=1), at(5, 5))
    assert first[0] != first[1]
    assert sample(logits, Sampling(1.0, seed=2), at(5, 5))[0] != first[0]
    assert sample(logits, Sampling(1.0, seed=1), at(6, 5))[0] != first[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_k": 2.5},
        {"top_k": True},
        {"top_k": 2**64},
        {"top_p": 0.0},
        {"seed": -1},
        {"seed": 2.0},
        {"seed": True},
        {"seed": 2**64},
    ],
)
def test_parameters_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(RunError) as caught:
        Sampling(**wrong)  # type: ignore[arg-type]
    assert caught.value.where == next(iter(wrong))
