"""Checks of whole rings, in which the runner under test has one place: the other devices and the client are ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partc.conformance.bench import PATIENCE_S, Bench
from partc.conformance.bundles import EOS, HIDDEN, LENGTH, VOCABULARY
from partc.conformance.findings import Mismatch, same
from partc.conformance.peer import refusals_of
from partc.conformance.reference import GREEDY, same_trace
from partc.errors import RunError
from partc.format.message_parts import Sampling
from partc.format.role import source_role
from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result

PROMPTS = ([5], [1, 9, 2, 14, 7], [16, 0, 8, 4, 12, 6, 10, 2, 5])
COUNT = 12
SAMPLINGS = (
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=1.0, top_k=1, seed=2),
    Sampling(temperature=1.6, top_k=5, seed=3),
    Sampling(temperature=1.2, top_p=0.5, seed=2**63 + 4),
    Sampling(temperature=30.0, top_k=9, top_p=0.9, seed=5),
)
LIKELY = Sampling(temperature=20.0, seed=6, likely=3)
_ROWS = len(PROMPTS[1]) + 4
_TRAVELLED = {
    "a": (2 * _ROWS * HIDDEN * 4, 5 * 8),
    "b": (_ROWS * HIDDEN * 4, _ROWS * HIDDEN * 4),
    "c": (5 * 8, 2 * _ROWS * HIDDEN * 4),
}
"""Device → bytes of tensors that it sends and receives for `PROMPTS[1]` and 5 tokens."""
_UNIT = 1.5e-6
"""Two logarithms of one probability may differ by a unit in the last place of float32."""


def result_of(client: Client, request: Request) -> Result:
    """The result of a request that is under way; raises `Mismatch` where none comes."""
    client.wait([request], PATIENCE_S)
    if request.outcome is None:
        raise Mismatch(f"a request has no end after {PATIENCE_S:.0f} s")
    if isinstance(request.outcome, Result):
        return request.outcome
    raise request.outcome


def generate(
    client: Client, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = GREEDY, **options: Any
) -> Result:
    """Generate and wait, but not for ever."""
    return result_of(client, client.submit(prompts, max_new_tokens=count, sampling=sampling, **options))


def _compared(bench: Bench, device: str, build: str, prompts: Sequence[Sequence[int]], count: int) -> None:
    right = bench.reference(build).answer(prompts, count, ignore_eos=True)
    with bench.ring(build, device).client() as client:
        found = generate(client, prompts, count, ignore_eos=True, trace=True)
    same([list(row) for row in found.tokens], right.tokens, f"tokens behind {list(prompts)}")
    same_trace(found.trace, right.trace)


def check_values(bench: Bench, device: str) -> None:
    """Prompts of several lengths, alone."""
    for prompt in PROMPTS:
        _compared(bench, device, "chain", [prompt], COUNT)


def check_batch(bench: Bench, device: str) -> None:
    """Sequences of unequal lengths in one request."""
    _compared(bench, device, "chain", PROMPTS, COUNT)
    _compared(bench, device, "chain", [PROMPTS[2], PROMPTS[0]], 4)


def check_parts(bench: Bench, device: str) -> None:
    """A prompt that goes in parts, one that just does not, and one of exactly two."""
    for prompt in (PROMPTS[2], PROMPTS[2][:4], PROMPTS[2][:8]):
        _compared(bench, device, "parts", [prompt], COUNT)


def check_whole(bench: Bench, device: str) -> None:
    """States that each step rewrites."""
    for prompt in PROMPTS:
        _compared(bench, device, "whole", [prompt], COUNT)


def check_returning(bench: Bench, device: str) -> None:
    """Steps that come back to a device."""
    for prompt in PROMPTS:
        _compared(bench, device, "returning", [prompt], COUNT)


def check_full(bench: Bench, device: str) -> None:
    """An answer up to the last position."""
    _compared(bench, device, "chain", [PROMPTS[1]], LENGTH - len(PROMPTS[1]))
    _compared(bench, device, "chain", [list(range(LENGTH - 7))[:16] + [1] * 7], 1)


def check_together(bench: Bench, device: str) -> None:
    """As many requests in flight as there are slots, and more that wait."""
    prompts = [*PROMPTS, *PROMPTS[:2]]
    right = [bench.reference("chain").answer([prompt], COUNT, ignore_eos=True) for prompt in prompts]
    with bench.ring("chain", device).client() as client:
        asked = [
            client.submit([prompt], max_new_tokens=COUNT, ignore_eos=True, trace=True) for prompt in prompts
        ]
        found = [result_of(client, request) for request in asked]
    for each, expected in zip(found, right, strict=True):
        same([list(row) for row in each.tokens], expected.tokens, "tokens of requests in flight together")
        same_trace(each.trace, expected.trace)


def check_again(bench: Bench, device: str) -> None:
    """A slot that another request had: nothing of that is left."""
    for prompt in (PROMPTS[2], PROMPTS[0], PROMPTS[2]) * 2:
        _compared(bench, device, "whole" if device == "b" else "chain", [prompt], 3)


def check_sampling(bench: Bench, device: str) -> None:
    """Draws with temperature, top-k and top-p, of one sequence and of several."""
    with bench.ring("chain", device).client() as client:
        for sampling in SAMPLINGS:
            for prompts in ([PROMPTS[1]], PROMPTS):
                right = bench.reference("chain").answer(prompts, COUNT, sampling, ignore_eos=True)
                found = generate(client, prompts, COUNT, sampling, ignore_eos=True)
                same([list(row) for row in found.tokens], right.tokens, f"tokens drawn by {sampling}")


def check_likely(bench: Bench, device: str) -> None:
    """Probabilities of the drawn token and of the likeliest ones."""
    sampling = LIKELY
    told: list[Any] = []
    with bench.ring("chain", device).client() as client:
        found = generate(client, [PROMPTS[1]], 6, sampling, ignore_eos=True, trace=True, on_token=told.append)
    logits = {each.step: each.values["logits"] for each in found.trace if "logits" in each.values}
    same(len(told), 6, "steps that were told of")
    for number, (step, tokens) in enumerate(zip(sorted(logits), told, strict=True)):
        row = logits[step][0, 0].astype(np.float64)
        right = row - row.max() - np.log(np.exp(row - row.max()).sum())
        if not tokens.likely or len(tokens.likely[0]) != 3:
            raise Mismatch(f"token {number} has the probabilities {tokens.likely}, 3 were asked for")
        drawn, *likeliest = tokens.likely[0]
        same(drawn.token, found.tokens[0][number], "the first of the likely tokens")
        same([each.token for each in likeliest], _likeliest(row, 2), "the likeliest tokens")
        for each in tokens.likely[0]:
            if abs(each.logprob - right[each.token]) > _UNIT * max(1.0, abs(right[each.token])):
                raise Mismatch(
                    f"token {each.token} has the logarithm {each.logprob}, not {right[each.token]}"
                )


def _likeliest(row: Any, count: int) -> list[int]:
    """Ids by falling logit; of equal ones the lowest first."""
    return [int(number) for number in np.lexsort((np.arange(len(row)), -row))[:count]]


def check_ends(bench: Bench, device: str) -> None:
    """End tokens of the model and of the request, and the most tokens."""
    with bench.ring("chain", device).client() as client:
        for prompt in ([token] for token in range(VOCABULARY)):
            right = bench.reference("chain").answer([prompt], COUNT)
            found = generate(client, [prompt], COUNT)
            same([list(row) for row in found.tokens], right.tokens, f"tokens up to the end token {EOS}")
            same(list(found.finish), right.finish, "why the answer ended")
        free = bench.reference("chain").answer([PROMPTS[1]], COUNT, ignore_eos=True).tokens[0]
        stop = free[2]
        found = generate(client, [PROMPTS[1]], COUNT, ignore_eos=True, stop=[stop])
        same(
            list(found.tokens[0]), free[: free.index(stop) + 1], f"tokens up to the request's own end {stop}"
        )
        same(list(found.finish), ["stop"], "why the answer ended")


def check_cancel(bench: Bench, device: str) -> None:
    """A request that its client leaves; the next one has its slot."""
    with bench.ring("chain", device).client() as client:
        for _ in range(4):
            request = client.submit([PROMPTS[0]], max_new_tokens=LENGTH - 1, ignore_eos=True)
            request.cancel()
            client.wait([request], PATIENCE_S)
            if not isinstance(request.outcome, RunError):
                raise Mismatch(f"a request that was cancelled ended with {request.outcome!r:.80}")
        right = bench.reference("chain").answer([PROMPTS[1]], 3, ignore_eos=True)
        same(list(generate(client, [PROMPTS[1]], 3, ignore_eos=True).tokens[0]), right.tokens[0], "tokens")


def check_timings(bench: Bench, device: str) -> None:
    """Every device reports the times of every token."""
    with bench.ring("chain", device).client() as client:
        found = generate(client, [PROMPTS[1]], 5, ignore_eos=True)
    same(sorted(found.timings), ["a", "b", "c"], "devices that reported times")
    own = found.timings[device]
    same([int(step) for step in own.column("step")], list(range(5)), f"steps in the times of {device}")
    for name in ("compute_s", "queue_s"):
        if not all(0 <= seconds < PATIENCE_S for seconds in own.column(name)):
            raise Mismatch(f"{name} of {device} is {list(own.column(name))}")
    sent, received = (own.column(name).sum() for name in ("sent_bytes", "received_bytes"))
    same((sent, received), _TRAVELLED[device], f"bytes that {device} sent and received")


def check_refusals(bench: Bench, device: str) -> None:
    """Requests that the build does not allow end with an error whose cause is `input`; the ring goes on."""
    ring = bench.ring("chain", device)
    for what, error in refusals_of(bench.build("chain"), ring.source).items():
        if error is None:
            raise Mismatch(f"{what}: the request was not refused")
        same(error.problem.cause, "input", f"{what}: cause of the refusal")
    with ring.client() as client:
        right = bench.reference("chain").answer([PROMPTS[0]], 3, ignore_eos=True)
        same(list(generate(client, [PROMPTS[0]], 3, ignore_eos=True).tokens[0]), right.tokens[0], "tokens")


def check_given(bench: Bench, device: str) -> None:
    """A build of the user, whatever its target: tokens, and every value that crosses a link."""
    for name, build in bench.given.items():
        role = source_role(build)
        prompt = [token % (role.model.vocab_size or 1) for token in (5, 9, 2, 14, 7)]
        right = bench.reference(name).answer([prompt], 8, ignore_eos=True)
        for place in role.ring:
            with bench.ring(name, place).client() as client:
                found = generate(client, [prompt], 8, ignore_eos=True, trace=True)
            same([list(row) for row in found.tokens], right.tokens, f"{name}, {place}: tokens")
            same_trace(found.trace, right.trace)
