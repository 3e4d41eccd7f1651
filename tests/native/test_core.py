"""The core of native/src/core beside that of partc/runtime/core: the same events, the same commands."""

from __future__ import annotations

import difflib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partc.format.message_parts import Sampling
from partc.runtime.core.device.sampling import drawn
from partc.runtime.core.links import incoming
from tests.golden import trace
from tests.golden.test_protocol import PROTOCOL, played
from tests.native.device import NativeDevice, native_sample
from tests.native.formats import started
from tests.native.twin import twins
from tests.runtime import living, scenarios

pytestmark = pytest.mark.native

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def core(built: Path) -> Iterator[Process]:
    with started(built / "core") as process:
        yield process


def commands_of(text: str) -> list[str]:
    """A case without comments: words are for people."""
    return [line.partition("#")[0].rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(
    "path",
    sorted(PROTOCOL.glob("*.md")),
    ids=lambda path: path.stem,
)
def test_trace(path: Path, core: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "Device", partial(NativeDevice, core))
    text = path.read_text(encoding="utf-8")
    expected, actual = commands_of(text), commands_of(played(text))
    if difference := "\n".join(difflib.unified_diff(expected, actual, "expected", "native", lineterm="")):
        pytest.fail(difference, pytrace=False)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 5e-324, 1e-300, 0.3, 1.0, 5.0]),
    top_k=st.sampled_from([0, 1, 5, 2**64 - 1]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-9]),
    ties=st.booleans(),
    position=st.integers(0, 2**40),
    likely=st.integers(0, 21),
    holes=st.lists(st.integers(0, 299), max_size=3),
)  # fmt: skip
def test_samples(
    core: Process,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    ties: bool,
    position: int,
    likely: int,
    holes: list[int],
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, 300)).astype(np.float32)
    logits = np.round(logits * 2) if ties else logits
    if not temperature and not likely:
        logits[0, holes] = np.nan
    sampling = Sampling(temperature, top_k, top_p, seed, likely)
    positions = (position, position + 1)
    native, own = native_sample(core, logits, sampling, positions), drawn(logits, sampling, positions)
    assert [part.tolist() for part in native[:2]] == [part.tolist() for part in own[:2]]
    assert len(native) == len(own) == (3 if likely else 1)
    for one, other in zip(native[2:], own[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-23)  # one unit in the last place of float32


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("kind", "count"),
    [(living.life, 40), (living.shared_life, 20), (living.hybrid_life, 40), (living.guessing_life, 40)],
)
def test_lives_of_rings(kind: Callable[[int], living.Life], count: int, core: Process) -> None:
    """Rings that lose devices, move and heal (`tests.runtime.living`), with both cores at once."""
    counts: Counter[str] = Counter()
    with twins(core):
        for seed in range(count):
            counts += living.play(kind(seed))
    assert counts["results"] and counts["changes"] and counts["moves"], counts


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenario=scenarios.SCENARIOS)
def test_scenarios_of_rings(core: Process, scenario: scenarios.Scenario) -> None:
    """Requests in rings whose networks repeat, reorder and break (`tests.runtime.scenarios`), with both cores."""
    with twins(core):
        scenarios.play(scenario)


def test_a_core_that_differs_is_found(core: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_ACK_AFTER_S", 0.2)
    with twins(core), pytest.raises(AssertionError):
        for seed in range(20):
            living.play(living.life(seed))
