"""A ring without processes or sockets: every device's core and engine in one process, in no time.

Core, engine and sampling are the runner's own; only the shell is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Sampling
from partc.format.placement import Placement
from partc.format.role import Role, load_role
from partc.runtime.client.results import Crossing
from partc.runtime.engines.contract import Engine, load_engine
from partc.runtime.virtual.client import Answer
from partc.runtime.virtual.ring import Ring
from partc.verifier.inputs import split_prompt

_LIMIT_S = 60.0
"""Of virtual time: nothing takes any, but reports and acknowledgements may be waited for."""


class DirectRing:
    """All devices of a build."""

    def __init__(self, build: Path, prompt_chunk: int | None = None, *, one_slot: bool = False) -> None:
        """Open it.

        `prompt_chunk` stands instead of the build's: tokens of a prompt that go through the ring at once. With
        `one_slot` all requests use the states of slot 0, as a wrong engine would.
        """
        self.build = build
        folders = {path.parent.name: path.parent for path in sorted(build.glob("devices/*/build.json"))}
        self.roles: dict[str, Role] = {
            name: _in_chunks(load_role(folder), prompt_chunk) for name, folder in folders.items()
        }
        self.trace: dict[int, list[Crossing]] = {}
        """Request → what crossed links, and the logits."""
        self.requests = 0
        """Requests so far; the first one is number 1."""
        self.source = next(iter(self.roles.values())).source
        kind = _OneSlot if one_slot else lambda engine: engine
        self._ring = Ring(self.roles, lambda name: kind(load_engine(self.roles[name], folders[name])))

    def outputs(self, inputs: Mapping[str, Array], lengths: Sequence[int] = ()) -> Mapping[str, Array]:
        """The outputs of a model that does not generate; `lengths` are the valid tokens of each row."""
        given = {**inputs, "length": np.array(lengths, np.int64)} if lengths else inputs
        (answer,) = self._settle([self._ring.client.submit(inputs=given, trace=True)])
        return answer.outputs

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """`count` greedy tokens for every prompt, in one batch."""
        return self.generate_together([prompts], count)[0]

    def drawn(self, prompt: Sequence[int], count: int, sampling: Sampling) -> list[int]:
        """`count` tokens that are drawn, behind one prompt."""
        asked = self._ring.client.submit([prompt], count, sampling=sampling, ignore_eos=True, trace=True)
        (answer,) = self._settle([asked])
        return list(answer.result.tokens[0]) if answer.result else []

    def generate_together(
        self, batches: Sequence[Sequence[Sequence[int]]], count: int
    ) -> list[list[list[int]]]:
        """`count` greedy tokens for every prompt of every batch; the batches are requests in flight at once."""
        submit = self._ring.client.submit
        answers = self._settle([submit(batch, count, ignore_eos=True, trace=True) for batch in batches])
        return [[list(row) for row in answer.result.tokens] for answer in answers if answer.result]

    def generate_from(self, given: Sequence[Mapping[str, Array]], count: int) -> list[list[list[int]]]:
        """`count` greedy tokens behind what each request gives to be read; the requests are in flight at once.

        Token ids among the tensors of a picture are the prompt.
        """
        submit = self._ring.client.submit
        answers = [
            submit([ids] if ids else (), count, inputs=tensors, ignore_eos=True, trace=True)
            for ids, tensors in map(split_prompt, given)
        ]
        return [
            [list(row) for row in answer.result.tokens] for answer in self._settle(answers) if answer.result
        ]

    def moved(self, given: Mapping[str, Array], count: int, to: Placement, behind: int) -> list[int]:
        """`count` greedy tokens of a request while another placement is asked for, behind so many of them."""
        ring, (ids, tensors) = self._ring, split_prompt(given)
        answer = ring.client.submit([ids] if ids else (), count, inputs=tensors, ignore_eos=True)
        ring.run(ring.clock.now + _LIMIT_S, until=lambda: len(answer.tokens) >= behind)
        assert not answer.done
        ring.client.place(to)
        self._settle([answer])
        assert ring.client.placed == [True]
        assert answer.result is not None
        return list(answer.result.tokens[0])

    def _settle(self, answers: list[Answer]) -> list[Answer]:
        """Wait for the ends of requests.

        Raises:
            RunError: one failed.
        """
        ring = self._ring
        ring.run(ring.clock.now + _LIMIT_S, until=lambda: all(answer.done for answer in answers))
        for answer in answers:
            self.requests += 1
            self.trace[self.requests] = answer.trace
            if answer.problem is not None:
                raise answer.problem.error()
            if answer.result is None:
                raise RunError("the ring hangs", cause="stalled")
        return answers


class _OneSlot:
    """An engine that computes every request in slot 0."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        return self._engine.run(submodule, 0, inputs, dims)


def _in_chunks(role: Role, size: int | None) -> Role:
    if size is None:
        return role
    return role.changed(model=replace(role.model, prompt_chunk=size, prompt_steps=()))
