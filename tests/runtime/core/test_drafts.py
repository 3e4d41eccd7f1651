"""Drafts of a request's next tokens: what stood behind the same tokens before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.runtime.core.source.drafts import LENGTHS, Draft, Drafts

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def told(prompt: Sequence[int], expected: Sequence[int], answer: Sequence[int]) -> Drafts:
    drafts = Drafts(prompt, expected)
    for token in answer:
        drafts.add(token)
    return drafts


def slow_draft(
    prompt: Sequence[int], expected: Sequence[int], answer: Sequence[int], guesses: Sequence[int]
) -> Draft | None:
    """The rule, written without an index: of all places the last one whose tokens before are the longest ending."""
    begun = [*prompt, *expected]
    places = [(begun[:at], begun[at]) for at in range(len(begun))]
    told = [*prompt, *answer]
    places += [(told[:at], told[at]) for at in range(len(prompt), len(told))]
    text = [*told, *guesses]
    for index, length in enumerate(LENGTHS):
        ending = text[len(text) - length :] if length <= len(text) else None
        found = [token for before, token in places if ending and before[-length:] == ending]
        if found:
            return Draft(found[-1], index)
    return None


@given(TOKENS, TOKENS, TOKENS, st.lists(st.integers(0, 3), max_size=7))
def test_a_draft_is_what_came_behind_the_latest_occurrence_of_the_longest_ending(
    prompt: list[int], expected: list[int], answer: list[int], guesses: list[int]
) -> None:
    assert told(prompt, expected, answer).next(guesses) == slow_draft(prompt, expected, answer, guesses)


def test_nothing_is_known_of_a_token_that_never_came() -> None:
    assert told([5, 6], [], [7]).next([]) is None
    assert Drafts([], []).next([]) is None


def test_an_answer_begins_as_it_is_expected_to() -> None:
    """Behind the prompt, whatever the expected tokens end with."""
    drafts = Drafts([5, 6], [11, 12, 13])
    assert drafts.next([]) == Draft(11, LENGTHS.index(2))
    assert drafts.next([11, 12]) == Draft(13, LENGTHS.index(3))


@pytest.mark.parametrize("length", [1, 2, 4, 17, 40])
def test_a_draft_tells_how_long_its_match_is(length: int) -> None:
    words = list(range(100, 100 + length))
    draft = told([7, *words, 8, 9], [], words).next([])
    assert draft is not None
    assert draft.token == 8
    assert LENGTHS[draft.length] == max(each for each in LENGTHS if each <= length)
