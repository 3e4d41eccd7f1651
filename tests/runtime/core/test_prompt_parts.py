"""Prompts in parts that flow through the requests of a ring, delivered in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Opening
from partc.runtime.core.source.inputs import prompt_parts
from partc.runtime.core.step import MOST_FORCED, Step
from tests.runtime.bundles import HIDDEN, LENGTH, Build, language_model
from tests.runtime.core.network import Network
from tests.runtime.core.roles import GREEDY, hidden, roles
from tests.runtime.returning import returning_model

PROMPT = [1, 2, 5, 7, 8, 9, 10, 11, 4, 16, 2]
CHUNK = 4

Model = Callable[..., Build]


@pytest.fixture(params=[language_model, returning_model], ids=["once", "returning"])
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.param
    return found


def network(model: Model) -> Network:
    return Network(roles(model, prompt_chunk=CHUNK))


def begin(net: Network, number: int = 0) -> None:
    for step, inputs in steps_of(net, number):
        net.begin(step, inputs)


def steps_of(net: Network, number: int) -> list[tuple[Step, Mapping[str, Array]]]:
    role = net.roles["a"]
    parts = list(prompt_parts({"input_ids": np.array([PROMPT])}, len(PROMPT), 1, role))
    return [
        (
            Step(
                number,
                number,
                index,
                "prefill" if end == len(PROMPT) else "chunk",
                {"batch": 1, "sequence": end - start},
                (start,),
                (end - start,),
                None if index else Opening(number, GREEDY),
            ),
            inputs,
        )
        for index, (start, end, inputs) in enumerate(parts)
    ]


def decode(net: Network, number: int, token: int) -> None:
    dims = {"batch": 1, "sequence": 1}
    step = Step(number, number, 3 + token, "decode", dims, (len(PROMPT) + token,), (1,))
    net.begin(step, {"input_ids": np.full((1, 1), 3, np.int64)})


def tokens_alone(model: Model, number: int) -> list[list[int]]:
    net = network(model)
    begin(net, number)
    for token in itertools.count():
        net.settle()
        if token == 3:
            return net.tokens[number]
        decode(net, number, token)
    raise AssertionError


def test_the_source_runs_ahead() -> None:
    """It sends all parts before anybody has taken the first; only the last brings a token."""
    net = network(language_model)
    begin(net)
    net.advance()
    to_b = [(step.step, step.phase) for device, _, step, _ in net.air if device == "b"]
    assert to_b == [(0, "chunk"), (1, "chunk"), (2, "prefill")]
    net.settle()
    assert len(net.tokens[0]) == 1


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("kind", [language_model, returning_model], ids=["once", "returning"])
@given(random=st.randoms(use_true_random=False))
def test_interleaving_changes_nothing(kind: Model, random: Random) -> None:
    """Two requests, their parts delivered in any order that each link allows."""
    net = network(kind)
    counts = dict.fromkeys(range(2), 0)
    for number in counts:
        begin(net, number)
    while net.air or any(count < 3 for count in counts.values()):
        net.advance()
        for number, count in counts.items():
            if len(net.tokens.get(number, [])) > count and count < 3:
                decode(net, number, count)
                counts[number] += 1
                net.advance()
        if net.air:
            net.deliver(random.choice(net.heads()))
            net.advance()
    for number in counts:
        assert net.tokens[number] == tokens_alone(kind, number)


def test_the_parts_matter(model: Model) -> None:
    """The engine of these tests tells one way of cutting a prompt from another, so equal tokens prove the order."""
    net = network(model)
    whole = Step(0, 0, 0, "prefill", {"batch": 1, "sequence": 11}, (0,), (11,), Opening(0, GREEDY))
    net.begin(whole, {"input_ids": np.array([PROMPT])})
    net.settle()
    assert net.tokens[0] != tokens_alone(model, 0)[:1]


def test_the_parts_count_as_one_step(model: Model) -> None:
    net = network(model)
    begin(net)
    net.settle()
    decode(net, 0, 0)
    net.settle()
    received = 0
    for name, requests in net.requests.items():
        first, second = requests.close(0)
        assert (first.step, second.step) == (0, 1)
        assert first.compute_s > 1.9 * second.compute_s > 0, "three parts"
        received = first.received_bytes if name == "b" else received
    assert received > 0
    assert received % (len(PROMPT) * HIDDEN * 4) == 0


def test_closing_in_the_middle_of_a_prompt(model: Model) -> None:
    net = network(model)
    begin(net)
    net.advance()
    net.close(0)
    net.settle()
    assert net.tokens == {}
    assert net.doing() == {"idle"}
    assert not any(requests.in_flight for requests in net.requests.values())


def test_parts_must_follow(model: Model) -> None:
    net = network(model)
    begin(net)
    net.settle()
    late = Step(0, 0, 3, "chunk", {"batch": 1, "sequence": 4}, (11,), (4,))
    with pytest.raises(RunError, match="does not follow"):
        net.begin(late, {"input_ids": np.zeros((1, 4), np.int64)})
    with pytest.raises(RunError, match="does not follow"):
        net.put("b", "a", late, hidden("hidden_1", 4))


def test_a_device_holds_no_more_than_a_prompt_and_forced_steps(model: Model) -> None:
    net = network(model)
    begin(net)
    net.advance()
    first = next(index for index, item in enumerate(net.air) if item[0] == "b")
    device, peer, step, values = net.air[first]
    net.deliver(first)
    far = replace(step, step=1 + MOST_FORCED + LENGTH // CHUNK, opening=None)
    with pytest.raises(RunError, match="with other sizes than here"):
        net.put(device, peer, far, values)
