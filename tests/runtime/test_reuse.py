"""Rings that go on behind the rows of earlier requests, and tell the probabilities of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from partc.format.message_parts import Sampling
from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Result, Tokens
from tests.runtime.bundles import expected_logits, expected_tokens, language_model
from tests.runtime.runners import Runners

PROMPT = [1, 2, 5, 7, 8, 9, 10, 11, 4, 16, 2, 6, 5, 4]
TURN = 4

pytestmark = pytest.mark.ort


@pytest.fixture(scope="module", params=[None, 4], ids=["whole", "parts"])
def ring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runners: Runners
) -> Iterator[LocalRing]:
    made = language_model(prompt_chunk=request.param, prefix_reuse=True)
    with runners.launch(made.write(tmp_path_factory.mktemp("ring") / "build")) as started:
        yield started


def ask(ring: LocalRing, prompt: list[int], count: int = TURN, *, reuse: bool = True) -> Result:
    with ring.client() as client:
        return client.generate([prompt], count, ignore_eos=True, reuse=reuse)


def test_a_second_turn_computes_what_is_new(ring: LocalRing) -> None:
    first = ask(ring, PROMPT)
    assert first.tokens == [expected_tokens(PROMPT, TURN)]
    second = [*PROMPT, *first.tokens[0], 12]
    answer = ask(ring, second)
    assert answer.tokens == [expected_tokens(second, TURN)]
    # The row of the last token of an answer was never computed.
    assert (first.reused, answer.reused) == (0, len(PROMPT) + TURN - 1)


def test_rows_are_kept_as_far_as_the_prompts_are_alike(ring: LocalRing) -> None:
    ask(ring, [*PROMPT, 3, 3, 3, 9, 9], 1)
    other = [*PROMPT, 3, 3, 3, 8, 7]
    answer = ask(ring, other)
    assert (answer.reused, answer.tokens) == (len(PROMPT) + 3, [expected_tokens(other, TURN)])
    shorter = other[: len(PROMPT) + 3]
    again = ask(ring, shorter)
    assert again.tokens == [expected_tokens(shorter, TURN)]
    assert again.reused == len(shorter) - 1, "the last token is computed, for its logits"


def test_requests_that_want_nothing_of_others(ring: LocalRing) -> None:
    prompt = [9, *PROMPT[1:], 5, 5, 5]
    for _ in range(2):
        answer = ask(ring, prompt, reuse=False)
        assert (answer.reused, answer.tokens) == (0, [expected_tokens(prompt, TURN)])
    assert ask(ring, prompt).reused == 0, "those before it kept nothing"


def test_what_few_tokens_share_is_computed(ring: LocalRing) -> None:
    ask(ring, [13] * 15, 1)
    assert ask(ring, [13] * 15 + [4, 4]).reused == 0


def test_a_request_that_was_cancelled_leaves_its_rows(ring: LocalRing) -> None:
    prompt = [7, *PROMPT[1:]]
    with ring.client() as client:

        def stop(tokens: Tokens) -> None:
            if tokens.step == 3:
                request.cancel()

        request = client.submit([prompt], max_new_tokens=10, ignore_eos=True, reuse=True, on_token=stop)
        client.wait([request])
    following = [*prompt, *expected_tokens(prompt, 10)][: len(prompt) + 6]
    answer = ask(ring, following)
    assert answer.tokens == [expected_tokens(following, TURN)]
    assert answer.reused >= len(prompt) + 3


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_probabilities_come_with_each_token(ring: LocalRing, temperature: float) -> None:
    prompts = [PROMPT, PROMPT[3:8]]
    told: list[Tokens] = []
    with ring.client() as client:
        sampling = Sampling(temperature, seed=3, likely=4)
        result = client.generate(prompts, TURN, sampling, ignore_eos=True, on_token=told.append)
    for row, prompt in enumerate(prompts):
        for step, tokens in enumerate(told):
            logits = expected_logits([*prompt, *result.tokens[row][:step]])
            right = logits - np.log(np.exp(logits).sum())
            own, *others = tokens.likely[row]
            assert own.token == tokens.tokens[row] == result.tokens[row][step]
            assert [each.token for each in others] == np.argsort(-logits)[:3].tolist()
            found = [each.logprob for each in tokens.likely[row]]
            np.testing.assert_allclose(found, right[[own.token, *np.argsort(-logits)[:3]]], atol=1e-4)


def test_nothing_comes_where_nothing_is_wanted(ring: LocalRing) -> None:
    told: list[Tokens] = []
    with ring.client() as client:
        client.generate([PROMPT], TURN, ignore_eos=True, on_token=told.append)
    assert all(not tokens.likely for tokens in told)
