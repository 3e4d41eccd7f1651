"""Guessed tokens in rings of cores: the tokens are those without, they come sooner, and what is wrong has no effect."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from partc.format.message_parts import Sampling
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.virtual.client import Answer
from partc.runtime.virtual.network import Conditions
from partc.runtime.virtual.ring import Ring
from tests.runtime.roles import (
    LOCAL,
    ONE,
    RINGS,
    SHARED,
    THREE,
    TILES,
    VOCABULARY,
    Programs,
    null_engine,
    roles_of,
)

TOKENS = 120
SEVERAL = ((2, 1100), (4, 1300), (8, 1700))
"""Tokens that a step may take, and what they cost."""
COMPUTE_S = 0.01


@dataclass
class Played:
    """A request, and how long it took."""

    answer: Answer
    seconds: float
    widest: int
    """The most rows of a step of one token each."""

    @property
    def tokens(self) -> list[int]:
        assert self.answer.result is not None, self.answer.problem
        return list(self.answer.result.tokens[0])

    @property
    def counts(self) -> tuple[int, int]:
        """Guesses that steps took, and the right ones of these."""
        assert self.answer.result is not None
        return self.answer.result.drafted, self.answer.result.accepted


def seconds_of(device: str, work: Compute | Draw) -> float:
    """A row costs a tenth of the first one, and sampling a tenth of a sub-module."""
    return COMPUTE_S * (1 + 0.1 * len(work.others)) * (1.0 if isinstance(work, Compute) else 0.1)


def play(
    programs: Programs = THREE,
    expected: Sequence[int] = (),
    *,
    drafts: bool = True,
    delay_s: float = 0.001,
    jitter_s: float = 0.0,
    disorder: float = 0.0,
    temperature: float = 0.7,
    seed: int = 0,
    step_tokens: Sequence[tuple[int, int]] = (),
) -> Played:
    """The answer to a request that has the ring for itself."""
    roles = roles_of(programs, max_sequence=200, prompt_chunk=3, max_requests=2, step_tokens=step_tokens)
    rows: list[int] = []

    def timed(device: str, work: Compute | Draw) -> float:
        rows.append(1 + len(work.others))
        return seconds_of(device, work)

    ring = Ring(
        roles,
        lambda device: null_engine(roles[device]),
        seconds=timed,
        conditions=Conditions(delay_s, jitter_s, disorder),
        seed=seed,
    )
    ring.run(1.0)
    began = ring.clock.now
    answer = ring.client.submit(
        [(5, 6, 7, 8)],
        TOKENS,
        ignore_eos=True,
        sampling=Sampling(temperature=temperature, seed=1),
        drafts=drafts,
        expected=expected,
    )
    ring.run(1000.0, until=lambda: answer.done)
    return Played(answer, ring.clock.now - began, max(rows))


def partly(right: Sequence[int], share: float) -> list[int]:
    """The answer, with so many tokens of it right."""
    chance = random.Random(2)
    return [token if chance.random() < share else chance.randrange(VOCABULARY) for token in right]


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("programs", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_tokens_are_those_without(programs: Programs, share: float) -> None:
    plain = play(programs, drafts=False)
    assert plain.counts == (0, 0)
    guessed = play(programs, partly(plain.tokens, share))
    assert guessed.tokens == plain.tokens
    drafted, accepted = guessed.counts
    assert accepted <= drafted
    if programs is TILES:
        return  # its p2 has rows, and is not told where: every step that it has seen counts
    several = play(programs, partly(plain.tokens, share), step_tokens=SEVERAL)
    assert several.tokens == plain.tokens


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("jitter_s", [0.0, 0.05])
def test_messages_may_overtake_each_other(temperature: float, jitter_s: float) -> None:
    plain = play(drafts=False, temperature=temperature, jitter_s=jitter_s)
    for seed in range(5):
        guessed = play(
            expected=partly(plain.tokens, 0.7), temperature=temperature, jitter_s=jitter_s, seed=seed
        )
        assert guessed.tokens == plain.tokens


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("programs", [SHARED, LOCAL, THREE], ids=["shared", "local", "three"])
def test_steps_keep_their_order_where_links_put_frames_back_into_theirs(programs: Programs) -> None:
    """Several messages are handed on at once then, and the engine works meanwhile."""
    plain = play(programs, drafts=False)
    for seed in range(8):
        guessed = play(
            programs, partly(plain.tokens, 0.97), delay_s=0.02, jitter_s=0.03, disorder=0.3, seed=seed
        )
        assert guessed.tokens == plain.tokens


@pytest.mark.parametrize(("delay_s", "times"), [(0.0, 2.3), (0.001, 2.5), (0.025, 5.7)])
def test_a_copy_comes_as_fast_as_the_slowest_stage_lets_it(delay_s: float, times: float) -> None:
    plain = play(drafts=False, delay_s=delay_s)
    assert plain.seconds > times * play(expected=plain.tokens, delay_s=delay_s).seconds


def test_a_device_alone_guesses_where_a_step_takes_several_tokens() -> None:
    plain = play(ONE, drafts=False)
    assert play(ONE, plain.tokens).counts == (0, 0), "it has no time to fill"
    copied = play(ONE, plain.tokens, step_tokens=SEVERAL)
    assert copied.tokens == plain.tokens
    assert copied.widest == 8
    assert plain.seconds > 3.5 * copied.seconds, "8 tokens cost as much as 1.7"


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("programs", [ONE, THREE], ids=["one", "three"])
@pytest.mark.parametrize("cost", [0.1, 0.6, 1.0])
def test_steps_of_several_tokens_cost_nothing_where_they_are_dear_or_wrong(
    programs: Programs, share: float, cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build promises that a row costs a tenth of the first one; the ring finds out what it does."""
    one = COMPUTE_S
    monkeypatch.setattr(
        sys.modules[__name__], "seconds_of", lambda device, work: one * (1 + cost * len(work.others))
    )
    plain = play(programs, drafts=False)
    guessed = play(programs, partly(plain.tokens, share), step_tokens=SEVERAL)
    assert guessed.tokens == plain.tokens
    assert guessed.seconds < 1.03 * plain.seconds


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.025])
def test_rings_copy_faster_with_several_tokens_in_a_step(delay_s: float) -> None:
    plain = play(drafts=False, delay_s=delay_s)
    one = play(expected=plain.tokens, delay_s=delay_s)
    several = play(expected=plain.tokens, delay_s=delay_s, step_tokens=SEVERAL)
    assert several.tokens == plain.tokens
    assert (several.widest > one.widest == 1) == (delay_s < 0.02), (
        "else eight steps of one token fit into a lap"
    )
    assert several.seconds < 1.02 * one.seconds


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("delay_s", [0.0, 0.025])
def test_wrong_guesses_cost_nothing(share: float, delay_s: float) -> None:
    plain = play(drafts=False, delay_s=delay_s)
    guessed = play(expected=partly(plain.tokens, share), delay_s=delay_s)
    assert guessed.counts[0] > guessed.counts[1]
    assert guessed.seconds < 1.02 * plain.seconds


def test_several_requests_fill_the_ring_themselves() -> None:
    roles = roles_of(LOCAL, max_sequence=100, max_requests=6)
    ring = Ring(roles, lambda device: null_engine(roles[device]), seconds=lambda device, work: COMPUTE_S)
    ring.run(1.0)
    began = ring.clock.now
    right = play(LOCAL, drafts=False).tokens[:60]
    for drafts in (False, True):
        answers = [
            ring.client.submit([(5, 6, 7, 8)], 60, ignore_eos=True, drafts=drafts, expected=right)
            for _ in range(6)
        ]
        ring.run(1000.0, until=lambda asked=answers: all(answer.done for answer in asked))  # type: ignore[misc]
        assert all(answer.result is not None for answer in answers)
        seconds, began = ring.clock.now - began, ring.clock.now
        if not drafts:
            plain_s = seconds
    assert seconds < 1.02 * plain_s
