"""Conversations in rings of cores whose devices restart: rows that are kept are the right ones, or nothing is kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from partc.format.build import TensorType
from partc.format.dtypes import Array
from partc.format.role import Role
from partc.runtime.engines.null import NullEngine
from partc.runtime.virtual.network import Conditions
from partc.runtime.virtual.ring import Ring
from tests.runtime.roles import both, roles_of

PROGRAMS = {
    "a": both("run p0 (input_ids, position) -> (x)\nsend x to b\nrecv token from c\nemit token\n"),
    "b": both("recv x from a\nrun p1 (x, position) -> (y)\nsend y to c\n"),
    "c": both("recv y from b\nrun p2 (y, position) -> (logits)\nsample logits -> token\nsend token to a\n"),
}
POSITION = TensorType("int64", ("batch",))


class ByToken(NullEngine):
    """Computes token by token, so that its numbers do not depend on how a prompt is cut."""

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`; the inputs are values and `position`."""
        values, position = inputs
        made = [
            super(ByToken, self).run(
                submodule, slot, [values[:, at : at + 1], position + at], {**dims, "sequence": 1}
            )
            for at in range(dims["sequence"])
        ]
        if submodule == "p2":
            return made[-1]
        return [np.concatenate([step[0] for step in made], axis=1)]


def engine_of(role: Role) -> ByToken:
    engine = ByToken(role, Path())
    for name in role.submodules:
        engine.load(name)
    return engine


def ring_of(roles: Mapping[str, Role], chance: random.Random) -> Ring:
    conditions = Conditions(delay_s=0.001, jitter_s=chance.choice([0.0, 0.01]))
    return Ring(roles, lambda device: engine_of(roles[device]), conditions=conditions, rejoin_s=60.0, seed=1)


def answered(ring: Ring, prompt: Sequence[int], count: int, *, reuse: bool) -> tuple[list[int], int, int]:
    """Tokens, and how many rows were kept, and steps computed again."""
    answer = ring.client.submit([prompt], count, ignore_eos=True, reuse=reuse)
    ring.run(ring.clock.now + 100.0, until=lambda: answer.done)
    assert answer.result is not None, answer.problem
    (tokens,) = answer.result.tokens
    assert [row[0] for row in answer.tokens] == list(tokens)
    return list(tokens), answer.result.reused, answer.result.replayed


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("prompt_chunk", [None, 3])
def test_conversations_while_devices_restart(prompt_chunk: int | None) -> None:
    """Each turn has the tokens that it has alone; some keep rows, some lose them in the middle."""
    roles = roles_of(
        PROGRAMS, max_requests=2, prompt_chunk=prompt_chunk, types={"position": POSITION}, max_sequence=64
    )
    seen: Counter[str] = Counter()
    for seed in range(25):
        chance = random.Random(seed)
        ring, alone = ring_of(roles, chance), ring_of(roles, random.Random(0))
        conversations = [[chance.randrange(4, 17) for _ in range(17)] for _ in range(2)]
        for _ in range(5):
            prompt = chance.choice(conversations)
            if chance.random() < 0.5:
                device, pause = chance.choice("bc"), chance.choice([0.0, 0.5])
                ring.clock.after(chance.random() * 0.1, partial(ring.restart, device, pause))
            tokens, reused, replayed = answered(ring, prompt, 4, reuse=True)
            assert tokens == answered(alone, prompt, 4, reuse=False)[0]
            seen.update(kept=bool(reused), replayed=bool(replayed), turns=1)
            prompt += [*tokens, chance.randrange(4, 17)]
            ring.run(ring.clock.now + 5.0)
    assert seen["kept"] > 20, seen
    assert seen["replayed"] > 10, seen
