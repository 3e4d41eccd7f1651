"""One request on one device, through all states of the table in `core/device/request.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.errors import InternalError, RunError
from partc.format.message_parts import Resumption, Sampling
from partc.format.program import Message, parse_program
from partc.format.role import Role
from partc.runtime.core.actions import Action, Emitted, Forward, Seen
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.core.device.request import Request, State
from partc.runtime.core.device.script import Script
from partc.runtime.core.step import Step, together
from tests.runtime.bundles import HIDDEN, VOCABULARY
from tests.runtime.core.roles import GREEDY, changed, hidden, ids_of, roles, step_of
from tests.runtime.returning import returning_model

LOGITS = np.zeros((1, 1, VOCABULARY), np.float32)
TOKEN = {"token": np.array([6])}


def request_on(
    device: str | Role, *, trace: bool = False, sampling: Sampling = GREEDY, idle_since: float = 0.0
) -> Request:
    role = roles()[device] if isinstance(device, str) else device
    return Request(Script.of(role), 0, 0, sampling, trace, idle_since)


def state_of(request: Request) -> State:
    """Its state, which mypy takes for unchanging."""
    return request.state


def deliver(request: Request, peer: str, name: str, step: int = 0, now: float = 1.0) -> list[Action]:
    return list(request.deliver(peer, step_of(0, step), hidden(name, 1 if step else 3), now))


def begin(request: Request, step: int = 0, now: float = 1.0) -> None:
    made = step_of(0, step)
    request.begin(made, ids_of(made), now)


def advance(request: Request, now: float = 1.0) -> list[Action]:
    return list(request.advance(now))


def compute(request: Request, *names: str, sequence: int = 3, now: float = 1.0) -> None:
    """Values come from the engine that was asked for them."""
    request.computed([hidden(name, sequence)[name] for name in names], 0.5, now)


# -- states


def test_a_first_message_that_is_awaited() -> None:
    """opening, deliver → ready; advance → computing; computed → ready; advance → idle."""
    request = request_on("b")
    assert state_of(request) is State.OPENING
    assert deliver(request, "a", "hidden_1") == []
    assert state_of(request) is State.READY
    (command,) = advance(request)
    assert isinstance(command, Compute)
    assert (command.submodule, command.slot, command.resets) == ("part_1", 0, True)
    assert [array.shape for array in command.inputs] == [(1, 3, HIDDEN), (1,)]
    assert state_of(request) is State.COMPUTING
    compute(request, "hidden_2")
    assert state_of(request) is State.READY
    (sent,) = advance(request)
    assert isinstance(sent, Forward)
    assert (sent.peer, sent.step.step, sent.names) == ("c", 0, ("hidden_2",))
    assert state_of(request) is State.IDLE


def test_a_first_message_that_is_not_awaited_yet() -> None:
    """opening, deliver → waiting; deliver of what is awaited → ready."""
    request = request_on("c")
    deliver(request, "b", "hidden_2")
    assert state_of(request) is State.WAITING
    assert request.waits_for() == (0, Message("a", ("embed",)))
    deliver(request, "a", "embed")
    assert state_of(request) is State.READY
    assert request.waits_for() is None
    (command,) = advance(request)
    assert isinstance(command, Compute)


def test_a_step_of_the_source() -> None:
    """opening, begin → ready; waiting for its token; idle, begin → ready."""
    request = request_on("a")
    begin(request)
    assert state_of(request) is State.READY
    advance(request)
    compute(request, "embed", "hidden_1")
    sent = advance(request)
    assert [(item.peer, item.names) for item in sent if isinstance(item, Forward)] == [
        ("b", ("hidden_1",)),
        ("c", ("embed",)),
    ]
    assert state_of(request) is State.WAITING
    assert list(request.deliver("c", step_of(0, 0), TOKEN, 2.0)) == []
    (emitted,) = advance(request)
    assert isinstance(emitted, Emitted)
    assert emitted.values == TOKEN
    assert state_of(request) is State.IDLE
    begin(request, step=1)
    assert state_of(request) is State.READY


def test_messages_while_it_computes_change_no_state() -> None:
    request = request_on(roles(returning_model)["b"])
    deliver(request, "a", "hidden_1")
    advance(request)
    deliver(request, "a", "sum")
    assert state_of(request) is State.COMPUTING


@pytest.mark.parametrize("state", list(State))
def test_closing(state: State) -> None:
    """Every state leads to closed."""
    request = request_on("c")
    if state is not State.OPENING:
        deliver(request, "b", "hidden_2")
    if state not in (State.OPENING, State.WAITING):
        deliver(request, "a", "embed")
    if state in (State.COMPUTING, State.IDLE, State.CLOSED):
        advance(request)
    if state is State.IDLE:
        request.computed([LOGITS], 0.1, 1.0)
        advance(request)
        request.computed([TOKEN["token"]], 0.1, 1.0)
        advance(request)
    if state is State.CLOSED:
        request.close()
    assert state_of(request) is state
    request.close()
    assert state_of(request) is State.CLOSED
    assert request.waits_for() is None


# -- steps that come before the last one is over


def test_a_step_that_begins_while_another_is_under_way() -> None:
    request = request_on("a")
    begin(request)
    begin(request, step=1)
    advance(request)
    compute(request, "embed", "hidden_1")
    advance(request)
    list(request.deliver("c", step_of(0, 0), TOKEN, 2.0))
    advance(request)
    assert state_of(request) is State.READY, "the second step"
    (command,) = advance(request)
    assert isinstance(command, Compute)
    assert command.dims == {"batch": 1, "sequence": 1}
    assert not command.resets, "the states are its own now"


def test_messages_of_the_next_step_wait_for_it() -> None:
    request = request_on("b")
    deliver(request, "a", "hidden_1")
    deliver(request, "a", "hidden_1", step=1)
    advance(request)
    compute(request, "hidden_2")
    (sent,) = advance(request)
    assert isinstance(sent, Forward)
    assert sent.step.step == 0
    assert state_of(request) is State.READY, "the second step"


def test_steps_beyond_those_that_may_be_known_are_refused() -> None:
    """8 forced ones and the last part of a prompt may follow the one under way."""
    request = request_on("b")
    deliver(request, "a", "hidden_1")
    for step in range(1, 10):
        deliver(request, "a", "hidden_1", step=step)
    with pytest.raises(RunError, match="a is at step 10 of request 0 with other sizes"):
        deliver(request, "a", "hidden_1", step=10)


@pytest.mark.parametrize(
    "changes",
    [{"dims": {"batch": 1, "sequence": 2}}, {"slot": 1}, {"position": (1,)}, {"length": (2,)}],
    ids=str,
)
def test_two_devices_must_mean_the_same_step(changes: dict[str, Any]) -> None:
    request = request_on("c")
    deliver(request, "a", "embed")
    with pytest.raises(RunError, match="other sizes") as caught:
        list(request.deliver("b", replace(step_of(0, 0), **changes), hidden("hidden_2"), 1.0))
    assert caught.value.cause == "refused"


def test_a_decode_step_before_the_prefill_does_not_follow() -> None:
    request = request_on("b")
    with pytest.raises(RunError, match="does not follow"):
        list(request.deliver("a", replace(step_of(0, 0), phase="decode"), hidden("hidden_1"), 1.0))


def test_a_step_that_does_not_follow_leaves_room_for_the_one_that_does() -> None:
    request = request_on("b")
    deliver(request, "a", "hidden_1")
    advance(request)
    compute(request, "hidden_2")
    advance(request)
    with pytest.raises(RunError, match="does not follow"):
        request.deliver("a", step_of(0, 1, off=1), hidden("hidden_1", 1), 1.0)
    longer = replace(step_of(0, 1), dims={"batch": 1, "sequence": 2}, length=(2,))
    request.deliver("a", longer, hidden("hidden_1", 2), 1.0)
    (command,) = advance(request)
    assert isinstance(command, Compute)
    assert (command.dims, command.inputs[1].tolist()) == (longer.dims, [3])


def resumed(number: int, step: int, phase: str = "decode") -> Request:
    """A request behind a prompt of three tokens, in another placement."""
    ends = ((3,),) if step else ()
    return Request.resumed(
        Script.of(roles()["b"]), Resumption(number, number, GREEDY, False, step, phase, ends), None, 0.0
    )


def test_requests_that_were_resumed_share_a_step() -> None:
    first, second = resumed(0, 2), resumed(1, 4)
    step = together([step_of(0, 2), step_of(1, 4)])
    first.share(step, [second])
    assert first.shares
    first.deliver("a", step, {"hidden_1": np.zeros((2, 1, HIDDEN), np.float32)}, 1.0)
    (command,) = advance(first)
    assert isinstance(command, Compute)
    assert (command.slot, command.others, command.inputs[1].tolist()) == (0, (1,), [4, 6])
    compute(first, "hidden_2")
    (sent,) = advance(first)
    assert isinstance(sent, Forward)
    assert (first.steps, second.steps, first.shares) == (3, 5, False)


@pytest.mark.parametrize(
    ("second", "step", "message"),
    [
        (resumed(1, 4), step_of(1, 3), "step 3 of request 1 does not follow its step 3"),
        (resumed(1, 4), step_of(1, 4, off=1), "does not follow"),
        (resumed(1, 4), step_of(1, 4, slot=0), "does not follow"),
        (resumed(1, 1, "chunk"), step_of(1, 1), "does not follow"),
        (resumed(1, 0), step_of(1, 1), "does not follow"),
    ],
)
def test_a_request_that_is_not_at_its_step_shares_none(second: Request, step: Step, message: str) -> None:
    first = resumed(0, 2)
    with pytest.raises(RunError, match=message) as caught:
        first.share(together([step_of(0, 2), step]), [second])
    assert caught.value.cause == "refused"
    assert not first.shares


def test_a_request_whose_step_is_under_way_shares_none() -> None:
    first, second = resumed(0, 2), resumed(1, 4)
    second.deliver("a", step_of(1, 4), hidden("hidden_1", 1), 1.0)
    with pytest.raises(RunError, match="request 1 has a step under way"):
        first.share(together([step_of(0, 2), step_of(1, 4)]), [second])


def test_logits_are_drawn_from_at_the_place_of_the_new_token() -> None:
    sampling = Sampling(temperature=0.5, seed=3)
    request = request_on("c", sampling=sampling)
    deliver(request, "a", "embed")
    deliver(request, "b", "hidden_2")
    advance(request)
    request.computed([LOGITS], 0.1, 1.0)
    (drawn,) = advance(request)
    assert isinstance(drawn, Draw)
    assert (drawn.logits.shape, drawn.sampling, drawn.positions) == ((1, VOCABULARY), sampling, (3,))
    assert state_of(request) is State.COMPUTING


def test_logits_of_another_shape_are_a_bug() -> None:
    request = request_on("c")
    deliver(request, "a", "embed")
    deliver(request, "b", "hidden_2")
    advance(request)
    request.computed([np.zeros((1, 3, VOCABULARY), np.float32)], 0.1, 1.0)
    with pytest.raises(InternalError, match="logits have the shape"):
        advance(request)


# -- what it holds and tells


def test_a_traced_request_tells_what_it_received_and_what_it_samples_from() -> None:
    request = request_on("c", trace=True)
    (seen,) = deliver(request, "a", "embed")
    assert isinstance(seen, Seen)
    assert (seen.peer, list(seen.values)) == ("a", ["embed"])
    deliver(request, "b", "hidden_2")
    advance(request)
    request.computed([LOGITS], 0.1, 1.0)
    sampled, _ = advance(request)
    assert isinstance(sampled, Seen)
    assert (sampled.peer, list(sampled.values)) == ("c", ["logits"])


def test_values_that_nothing_uses_any_more_are_let_go() -> None:
    program = roles()["c"].programs["decode"]
    found = dict(zip(program, Script.of(roles()["c"]).dead["decode"], strict=True))
    assert {item: sorted(names) for item, names in found.items() if names} == {
        program[2]: ["embed", "hidden_2", "length"],
        program[3]: ["logits"],
        program[4]: ["token"],
    }


def test_no_more_steps_are_known_before_their_time_than_a_prompt_has_parts_and_forced_ones() -> None:
    """8 + 24 tokens in parts of 4, each with two messages."""
    script = Script.of(roles(prompt_chunk=4)["c"])
    assert (script.most_steps, script.most_early) == (14, 28)
    assert (Script.of(roles()["c"]).most_steps, Script.of(roles()["c"]).most_early) == (9, 18)


def test_a_step_tells_under_which_placement_it_ran() -> None:
    role = roles()["b"]
    request = request_on(Role(role.build, replace(role.placement, epoch=3)))
    deliver(request, "a", "hidden_1")
    advance(request)
    compute(request, "hidden_2")
    advance(request)
    (timing,) = request.timings
    assert timing.epoch == 3


def test_where_the_time_went() -> None:
    """Seconds: begins at 10, waits for `embed` until 12 (the very first step did not wait for its first message)."""
    request = request_on("c", idle_since=3.0)
    deliver(request, "b", "hidden_2", now=10.0)
    deliver(request, "a", "embed", now=12.0)
    advance(request, now=13.0)
    request.computed([LOGITS], 0.25, 14.0)
    advance(request, now=14.0)
    request.computed([TOKEN["token"]], 0.25, 15.0)
    advance(request, now=15.0)
    (timing,) = request.timings
    assert (timing.started_s, timing.compute_s, timing.queue_s) == (10.0, 0.5, 1.0)
    assert timing.wait_s == {"a": 2.0}
    assert timing.received_bytes == 2 * 3 * HIDDEN * 4
    assert timing.sent_bytes == 8
    deliver(request, "a", "embed", step=1, now=20.0)
    deliver(request, "b", "hidden_2", step=1, now=20.5)
    advance(request, now=21.0)
    request.computed([LOGITS], 0.25, 22.0)
    advance(request, now=22.0)
    request.computed([TOKEN["token"]], 0.25, 23.0)
    advance(request, now=23.0)
    assert request.timings[1].wait_s == {"a": 5.0}, "since the step before was over"


def test_the_same_name_from_two_devices() -> None:
    """Messages are told apart by their senders, too."""
    role = roles()["c"]
    program = parse_program("recv x from a\nrecv x from b\nrun part_2 (x, length) -> (logits)\n")
    request = request_on(changed(role, programs={"prefill": program}))
    deliver(request, "b", "x")
    assert request.waits_for() == (0, Message("a", ("x",)))
    deliver(request, "a", "x")
    assert state_of(request) is State.READY


# -- guesses


def guess(step: int, branch: int = 0) -> Step:
    return replace(step_of(0, step), branch=branch, busy_s=0.0)


def prompted(role: str = "b") -> Request:
    """A request behind its prompt."""
    request = request_on(role)
    deliver(request, "a", "hidden_1")
    advance(request)
    compute(request, "hidden_2")
    advance(request)
    assert request.steps == 1
    return request


def take(request: Request, step: Step, peer: str = "a", name: str = "hidden_1") -> None:
    request.deliver(peer, step, hidden(name, 1), 1.0)


def compute_token(request: Request) -> None:
    """On the last device: logits, and the token that is drawn of them."""
    request.computed([LOGITS], 0.1, 1.0)
    advance(request)
    request.computed([TOKEN["token"]], 0.1, 1.0)


def test_steps_of_guesses_are_under_way_together_and_in_order() -> None:
    request = prompted()
    for step in (1, 2, 3):
        take(request, guess(step))
    sent = []
    for _ in range(3):
        (command,) = advance(request)
        assert isinstance(command, Compute)
        compute(request, "hidden_2", sequence=1)
        (forward,) = advance(request)
        assert isinstance(forward, Forward)
        sent.append(forward.step.step)
    assert sent == [1, 2, 3]
    assert state_of(request) is State.IDLE


def test_a_newer_branch_makes_steps_void() -> None:
    request = prompted()
    for step in (1, 2):
        take(request, guess(step))
    advance(request)
    compute(request, "hidden_2", sequence=1)
    advance(request)
    assert request.steps == 2
    advance(request)  # the engine works for the second
    take(request, guess(1, branch=1))
    assert (request.steps, request.branch, len(request.timings)) == (1, 1, 1)
    assert state_of(request) is State.READY, "what is computed has no consequence"
    take(request, guess(3))
    assert request.waits_for() is None and request.steps == 1, "rows of the old branch are ignored"
    (command,) = advance(request)
    assert isinstance(command, Compute)
    compute(request, "hidden_2", sequence=1)
    (forward,) = advance(request)
    assert isinstance(forward, Forward)
    assert (forward.step.step, forward.step.branch) == (1, 1)


def test_a_true_step_that_waits_for_what_no_token_needs_stays() -> None:
    """Devices that share a stage may wait for the sums of a step whose token the source has."""
    request = request_on("c")
    deliver(request, "a", "embed")
    deliver(request, "b", "hidden_2")
    advance(request)
    compute_token(request)
    advance(request)
    for step in (guess(1), guess(2), guess(2, branch=2)):
        take(request, step, "a", "embed")
        advance(request)
    assert request.waits_for() == (1, Message("b", ("hidden_2",)))
    take(request, guess(2), "b", "hidden_2")
    assert request.waits_for() == (1, Message("b", ("hidden_2",))), "a row of the old branch is ignored"
    take(request, guess(1), "b", "hidden_2")
    advance(request)
    compute_token(request)
    (forward,) = advance(request)
    assert isinstance(forward, Forward)
    assert (forward.step.step, request.steps) == (1, 2)
    advance(request)
    assert request.waits_for() == (2, Message("b", ("hidden_2",)))


def test_what_others_fetch_ends_where_guesses_may_begin() -> None:
    request = prompted()
    take(request, guess(1))
    assert request.settled == 1, "the prompt is no guess"
    for step in range(2, 12):
        advance(request)
        compute(request, "hidden_2", sequence=1)
        advance(request)
        take(request, guess(step))
    assert (request.steps, request.settled) == (11, 4)
