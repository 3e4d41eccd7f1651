"""Long prompts in several steps that flow through the ring."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.errors import BundleError, RunError
from partc.format.program import parse_program, print_program, tokenless
from partc.format.role import load_role
from partc.runtime.client.launch import LocalRing
from tests.runtime.bundles import Build, Device, expected_tokens, language_model, reseal
from tests.runtime.returning import PROGRAM_A, PROGRAM_B, returning_model
from tests.runtime.runners import Runners

PROMPT = [1, 2, 5, 7, 8, 9, 10, 11, 4, 16, 2]
CHUNK, COUNT = 4, 8


def alone(prompt_chunk: int | None = CHUNK) -> Build:
    """The language model on one device."""
    made = language_model(prompt_chunk=prompt_chunk)
    text = (
        "run part_0 (input_ids) -> (embed, hidden_1)\nrun part_1 (hidden_1, position) -> (hidden_2)\n"
        "run part_2 (hidden_2, embed, length) -> (logits)\nsample logits -> token\nemit token\n"
    )
    parts = [part for device in made.devices.values() for part in device.parts]
    values = {name: kind for device in made.devices.values() for name, kind in device.values.items()}
    return replace(made, devices={"a": Device(parts, {"prefill": text, "decode": text}, values)})


# -- programs


def test_the_program_of_a_part_makes_no_token() -> None:
    text = "run p0 (ids) -> (h)\nsend h to b\nrecv token from b\nemit token\n"
    assert print_program(tokenless(parse_program(text))) == "run p0 (ids) -> (h)\nsend h to b\n"
    last = "recv h from a\nrun p1 (h) -> (logits)\nsample logits -> token\nsend token to a\n"
    assert print_program(tokenless(parse_program(last))) == "recv h from a\nrun p1 (h) -> (logits)\n"


def test_programs_of_devices_that_return_keep_all_other_messages() -> None:
    whole = [set(program.splitlines()) for program in (PROGRAM_A, PROGRAM_B)]
    left = [set(print_program(tokenless(parse_program(p))).splitlines()) for p in (PROGRAM_A, PROGRAM_B)]
    assert whole[0] - left[0] == {"recv token from b", "emit token"}
    assert whole[1] - left[1] == {"sample logits -> token", "send token to a"}


def test_a_size_must_be_one(tmp_path: Path) -> None:
    folder = language_model("null", prompt_chunk=0).write(tmp_path / "build") / "devices" / "a"
    with pytest.raises(BundleError, match="prompt_chunk"):
        load_role(folder)


# -- rings


@pytest.fixture(scope="module", params=[language_model, returning_model], ids=["once", "returning"])
def ring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runners: Runners
) -> Iterator[LocalRing]:
    made: Build = request.param(prompt_chunk=CHUNK)
    with runners.launch(made.write(tmp_path_factory.mktemp("ring") / "build")) as started:
        yield started


@pytest.mark.ort
def test_tokens_are_those_of_the_whole_model(ring: LocalRing) -> None:
    prompts = [PROMPT, PROMPT[:CHUNK], PROMPT[3:], [4]]
    seen: list[int] = []
    with ring.client() as client:
        requests = [
            client.submit(p, max_new_tokens=COUNT, ignore_eos=True, on_token=lambda t: seen.append(t.step))
            for p in prompts
        ]
        results = [request.result() for request in requests]
        batch = client.generate(prompts[:3], COUNT, ignore_eos=True)
    assert [result.tokens[0] for result in results] == [expected_tokens(prompt, COUNT) for prompt in prompts]
    assert batch.tokens == [result.tokens[0] for result in results[:3]]
    assert sorted(seen) == sorted([*range(COUNT)] * len(prompts)), "tokens are counted, not steps"
    for timings in results[0].timings.values():
        assert timings.column("step").tolist() == [*range(COUNT)]


@pytest.mark.ort
def test_a_ring_of_one(tmp_path: Path, runners: Runners) -> None:
    """The same tokens as of a whole prompt, while another request is in flight; logits as close as rounding is."""
    found = []
    for name, size in (("parts", CHUNK), ("whole", None)):
        with runners.launch(alone(size).write(tmp_path / name)) as ring, ring.client() as client:
            requests = [
                client.submit(prompt, max_new_tokens=COUNT, ignore_eos=True, trace=True)
                for prompt in (PROMPT, PROMPT[3:])
            ]
            found.append([request.result() for request in requests])
    parts, whole = found
    assert [result.tokens for result in parts] == [result.tokens for result in whole]
    assert parts[0].tokens == [expected_tokens(PROMPT, COUNT)]
    assert parts[0].timings["a"].column("step").tolist() == [*range(COUNT)]
    assert [item.step for item in whole[0].trace] == [*range(COUNT)]
    assert [item.step for item in parts[0].trace] == [*range(2, 2 + COUNT)], "three parts, one token of them"
    for ours, right in zip(parts[0].trace, whole[0].trace, strict=True):
        np.testing.assert_allclose(ours.values["logits"], right.values["logits"], atol=1e-5)


@pytest.mark.ort
def test_what_crosses_a_link_is_that_of_a_whole_prompt(
    ring: LocalRing, tmp_path: Path, runners: Runners
) -> None:
    def crossed(of: LocalRing) -> dict[tuple[str, str, str], np.ndarray[Any, Any]]:
        with of.client() as client:
            trace = client.generate(PROMPT, 2, ignore_eos=True, trace=True).trace
        rows: dict[tuple[str, str, str], list[np.ndarray[Any, Any]]] = {}
        for item in sorted(trace, key=lambda item: item.step):
            for name, array in item.values.items():
                rows.setdefault((name, item.peer, item.device), []).append(array.reshape(-1, array.shape[-1]))
        return {place: np.concatenate(arrays) for place, arrays in rows.items()}

    model = language_model if "c" in ring.pids else returning_model
    with runners.launch(model().write(tmp_path / "build")) as unchunked:
        whole = crossed(unchunked)
    parts = crossed(ring)
    assert set(parts) == set(whole)
    for place, rows in whole.items():
        assert np.allclose(parts[place].reshape(rows.shape), rows, atol=1e-6), place


@pytest.mark.ort
def test_a_part_that_fails_ends_the_request(tmp_path: Path, runners: Runners) -> None:
    """A device that was given another build's size does not know the phase."""
    build = language_model(prompt_chunk=CHUNK).write(tmp_path / "build")
    middle = build / "devices" / "b" / "build.json"
    model = {**load_model(middle), "prompt_chunk": None}
    reseal(middle, model=model)
    with runners.launch(build) as ring, ring.client() as client:
        with pytest.raises(RunError, match="no step of 'chunk'"):
            client.generate(PROMPT, COUNT)
        # Every part fails by itself, and with each all that is in flight.
        time.sleep(0.5)
        assert client.generate(PROMPT[:CHUNK], COUNT, ignore_eos=True).tokens == [
            expected_tokens(PROMPT[:CHUNK], COUNT)
        ]


def load_model(build_file: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads(build_file.read_text())["model"]
    return model
