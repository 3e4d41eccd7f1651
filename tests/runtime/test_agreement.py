"""One request, one answer: whichever runner a device has, all of it is bit for bit that of a ring in virtual time.

The null engine's outputs depend on every bit that comes in and on the rows that a step may see, so that a difference
anywhere changes the tokens, which are drawn from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from partc.format.message_parts import Sampling
from partc.format.names import device_folders
from partc.format.role import load_role
from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Crossing
from partc.runtime.engines.contract import load_engine
from partc.runtime.virtual.ring import Ring
from tests.runtime.bundles import Build, language_model
from tests.runtime.returning import returning_model
from tests.runtime.runners import MIXED, NATIVE, PYTHON, Runners

COUNT = 8
CHUNK = 4


@dataclass(frozen=True)
class Ask:
    """A request."""

    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling = field(default_factory=Sampling)
    ignore_eos: bool = True


GREEDY, BATCH = Ask(((1, 2, 5),)), Ask(((1, 2, 5), (4,), (7, 8, 9, 10, 10)), ignore_eos=False)
IN_PARTS = Ask((tuple(range(2, 15)),))
SAMPLED = [
    Ask(prompts, Sampling(temperature, top_k, top_p, seed))
    for seed, (temperature, top_k, top_p) in enumerate(
        [(0.1, 0, 1.0), (50.0, 5, 1.0), (5.0, 0, 0.9), (5.0, 9, 0.5)]
    )
    for prompts in (GREEDY.prompts, BATCH.prompts)
]
ASKS = [GREEDY, BATCH, IN_PARTS, *SAMPLED, Ask(((3,),), Sampling(5.0, 0, 1.0, 2**64 - 1))]


def once() -> Build:
    """The ring a, b, c, and a residual from a to c."""
    return language_model("null", prompt_chunk=CHUNK)


def twice() -> Build:
    """The ring a, b, a, b."""
    return returning_model("null")


@pytest.fixture(scope="module", params=[once, twice])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Build = request.param()
    return made.write(tmp_path_factory.mktemp("agreement") / "build")


@pytest.fixture(scope="module")
def ring(build: Path, runners: Runners) -> Iterator[LocalRing]:
    with runners.launch(build) as ring:
        yield ring


def expected(build: Path, ask: Ask) -> list[Any]:
    folders = {folder.name: folder for folder in device_folders(build)}
    roles = {name: load_role(folder) for name, folder in folders.items()}
    virtual = Ring(roles, lambda name: load_engine(roles[name], folders[name]))
    answer = virtual.client.submit(
        ask.prompts, COUNT, sampling=ask.sampling, ignore_eos=ask.ignore_eos, trace=True
    )
    virtual.run(60.0, until=lambda: answer.done)
    assert answer.result is not None
    return [[list(row) for row in answer.result.tokens], list(answer.result.finish), bits(answer.trace)]


def bits(trace: Sequence[Crossing]) -> dict[Any, Any]:
    """Link and step → the tensors that crossed there."""
    return {
        (item.peer, item.device, item.step, name): (array.dtype.name, array.shape, array.tobytes())
        for item in trace
        for name, array in item.values.items()
    }


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("runners", [PYTHON, NATIVE, *MIXED], indirect=True)
def test_answers_are_the_same(build: Path, ring: LocalRing) -> None:
    with ring.client() as client:
        requests = [
            client.submit(
                ask.prompts,
                max_new_tokens=COUNT,
                sampling=ask.sampling,
                ignore_eos=ask.ignore_eos,
                trace=True,
            )
            for ask in ASKS
        ]
        for ask, request in zip(ASKS, requests, strict=True):
            result = request.result()
            found = [list(map(list, result.tokens)), list(result.finish), bits(result.trace)]
            assert found == expected(build, ask), ask
