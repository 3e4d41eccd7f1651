"""Long prompts in several steps that flow through the ring."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from partc.errors import BundleError, RunError
from partc.format.build import Port
from partc.format.program import chunk_program, parse_program, print_program
from partc.format.role import Role, load_role
from partc.runtime.core.link import Progress
from partc.runtime.jobs import Job, prompt_ends, prompt_steps
from partc.runtime.shell.launch import LocalRing, launch_local
from partc.runtime.wire import Opening, Step, check_step
from tests.runtime.bundles import HIDDEN, LENGTH, Build, Device, expected_tokens, language_model, reseal
from tests.runtime.returning import PROGRAM_A, PROGRAM_B, returning_model
from tests.runtime.test_executor import Network, network

PROMPT = [1, 2, 5, 7, 8, 9, 10, 11, 4, 16, 2]
CHUNK, COUNT = 4, 8


@pytest.fixture(scope="module", params=[language_model, returning_model], ids=["once", "returning"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Build = request.param("null", prompt_chunk=CHUNK)
    return made.write(tmp_path_factory.mktemp("chunks") / "build")


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


def source_of(build: Path) -> Role:
    return load_role(build / "devices" / "a")


def job_of(*prompts: list[int], number: int = 0) -> Job:
    ids = np.array(prompts, np.int64)
    dims = {"batch": len(prompts), "sequence": ids.shape[1]}
    lengths = (ids.shape[1],) * len(prompts)
    return Job(
        b"", 1, Opening({}), 0.0, Progress(0.0), inputs={"input_ids": ids}, dims=dims, number=number,
        position=(0,) * len(prompts), length=lengths, slot=number,
    )  # fmt: skip


# -- programs


def test_the_program_of_a_part_makes_no_token() -> None:
    text = "run p0 (ids) -> (h)\nsend h to b\nrecv token from b\nemit token\n"
    assert print_program(chunk_program(parse_program(text))) == "run p0 (ids) -> (h)\nsend h to b\n"
    last = "recv h from a\nrun p1 (h) -> (logits)\nsample logits -> token\nsend token to a\n"
    assert print_program(chunk_program(parse_program(last))) == "recv h from a\nrun p1 (h) -> (logits)\n"


def test_programs_of_devices_that_return_keep_all_other_messages() -> None:
    whole = [set(program.splitlines()) for program in (PROGRAM_A, PROGRAM_B)]
    left = [set(print_program(chunk_program(parse_program(p))).splitlines()) for p in (PROGRAM_A, PROGRAM_B)]
    assert whole[0] - left[0] == {"recv token from b", "emit token"}
    assert whole[1] - left[1] == {"sample logits -> token", "send token to a"}


def test_a_manifest_without_a_size_has_no_such_phase(tmp_path: Path) -> None:
    manifest = source_of(language_model("null").write(tmp_path / "build"))
    assert set(manifest.programs) == {"prefill", "decode"}
    assert len(list(prompt_steps(job_of(PROMPT), manifest))) == 1
    step = Step(0, 0, 0, "chunk", {"batch": 1, "sequence": 4}, (0,), (4,), Opening({}))
    with pytest.raises(RunError, match="no step of 'chunk'"):
        check_step(step, manifest)


def test_a_size_must_be_one(tmp_path: Path) -> None:
    manifest = language_model("null", prompt_chunk=0).write(tmp_path / "build") / "devices" / "a"
    with pytest.raises(BundleError, match="prompt_chunk"):
        load_role(manifest)


# -- steps


def test_a_prompt_in_nearly_equal_parts(build: Path) -> None:
    steps = list(prompt_steps(job_of(PROMPT), source_of(build)))
    assert [(s.step, s.phase, s.position, s.length, s.dims["sequence"]) for s, _ in steps] == [
        (0, "chunk", (0,), (3,), 3),
        (1, "chunk", (3,), (4,), 4),
        (2, "prefill", (7,), (4,), 4),
    ]
    assert [step.opening is None for step, _ in steps] == [False, True, True]
    assert np.concatenate([i["input_ids"] for _, i in steps], axis=1).tolist() == [PROMPT]


def test_short_prompts_and_batches_go_whole(build: Path) -> None:
    for job in (job_of(PROMPT[:CHUNK]), job_of(PROMPT, PROMPT)):
        ((step, inputs),) = prompt_steps(job, source_of(build))
        assert (step.phase, step.step) == ("prefill", 0)
        assert inputs is job.inputs


def test_parts_are_as_few_as_can_be(build: Path) -> None:
    model = structs.replace(source_of(build).model, prompt_chunk=128)
    assert [prompt_ends(width, 1, model) for width in (128, 129, 512)] == [
        [128],
        [64, 129],
        [128, 256, 384, 512],
    ]
    assert (
        prompt_ends(512, 2, model) == prompt_ends(512, 1, structs.replace(model, prompt_chunk=None)) == [512]
    )


def test_inputs_that_are_not_of_tokens_go_to_every_part(build: Path) -> None:
    manifest = source_of(build)
    style = Port("style", "float32", ("batch", 2))
    manifest = manifest.changed(inputs=(*manifest.build.inputs, style))
    job = job_of(PROMPT)
    job.inputs = {**job.inputs, "style": np.ones((1, 2), np.float32)}
    assert [inputs["style"].shape for _, inputs in prompt_steps(job, manifest)] == [(1, 2)] * 3


@pytest.mark.parametrize(
    ("step", "phase", "message"),
    [
        (0, "decode", "no step of 'decode'"),
        (0, "whole", "no step of 'whole'"),
        (3, "chunk", None),
        (3, "prefill", None),
    ],
)
def test_which_phases_a_step_may_have(build: Path, step: int, phase: str, message: str | None) -> None:
    opening = None if step else Opening({})
    made = Step(0, 0, step, phase, {"batch": 1, "sequence": 1}, (0,), (1,), opening)
    if message is None:
        check_step(made, source_of(build))
        return
    with pytest.raises(RunError, match=message):
        check_step(made, source_of(build))


# -- executors, without time


def begin(net: Network, number: int = 0) -> None:
    source = net.executors["a"]
    for step, inputs in prompt_steps(job_of(PROMPT, number=number), load(net)):
        source.begin(step, inputs)


def load(net: Network) -> Role:
    manifest: Role = net.executors["a"]._manifest
    return manifest


def decode(net: Network, number: int, token: int) -> None:
    step = Step(
        number, number, 3 + token, "decode", {"batch": 1, "sequence": 1}, (len(PROMPT) + token,), (1,)
    )
    net.executors["a"].begin(step, {"input_ids": np.full((1, 1), 3, np.int64)})


def run_alone(build: Path, number: int) -> list[list[int]]:
    net = network(build)
    begin(net, number)
    for token in itertools.count():
        settle(net, lambda: 0)
        if token == 3:
            return net.tokens[number]
        decode(net, number, token)
    raise AssertionError


def settle(net: Network, choose: Callable[[], int]) -> None:
    net.advance()
    while net.air:
        net.deliver(choose())
        net.advance()


def test_the_source_runs_ahead(tmp_path: Path) -> None:
    """It sends all parts before anybody has taken the first; only the last brings a token."""
    net = network(language_model("null", prompt_chunk=CHUNK).write(tmp_path / "build"))
    begin(net)
    net.advance()
    to_b = [(step.step, step.phase) for device, _, step, _ in net.air if device == "b"]
    assert to_b == [(0, "chunk"), (1, "chunk"), (2, "prefill")]
    settle(net, lambda: 0)
    assert len(net.tokens[0]) == 1


@given(st.randoms(use_true_random=False))
def test_interleaving_changes_nothing(build: Path, random: Any) -> None:
    """Two requests, their parts delivered in any order that each link allows."""
    net = network(build)
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
        heads = [i for i, item in enumerate(net.air) if all(item[:2] != other[:2] for other in net.air[:i])]
        if heads:
            net.deliver(random.choice(heads))
            net.advance()
    for number in counts:
        assert net.tokens[number] == run_alone(build, number)


def test_the_parts_matter(build: Path) -> None:
    """The engine of these tests tells one way of cutting a prompt from another, so equal tokens prove the order."""
    alone = run_alone(build, 0)
    net = network(build)
    whole = load(net).changed(model=structs.replace(load(net).model, prompt_chunk=None))
    ((step, inputs),) = prompt_steps(job_of(PROMPT), whole)
    net.executors["a"].begin(step, inputs)
    settle(net, lambda: 0)
    assert net.tokens[0] != alone[:1]


def test_the_parts_count_as_one_step(build: Path) -> None:
    net = network(build)
    begin(net)
    settle(net, lambda: 0)
    decode(net, 0, 0)
    settle(net, lambda: 0)
    for executor in net.executors.values():
        first, second = executor.timings_of(0)
        assert (first.step, second.step) == (0, 1)
        assert first.compute_s > 1.9 * second.compute_s > 0, "three parts"
    received = net.executors["b"].timings_of(0)[0].received_bytes
    assert received % (len(PROMPT) * HIDDEN * 4) == 0


def test_closing_in_the_middle_of_a_prompt(build: Path) -> None:
    net = network(build)
    begin(net)
    net.advance()
    for executor in net.executors.values():
        executor.close(0)
    settle(net, lambda: 0)
    assert net.tokens == {}
    assert all(executor.doing() == "idle" and not executor.ready for executor in net.executors.values())


def test_parts_must_follow(build: Path) -> None:
    net = network(build)
    begin(net)
    settle(net, lambda: 0)
    late = Step(0, 0, 3, "chunk", {"batch": 1, "sequence": 4}, (11,), (4,))
    with pytest.raises(RunError, match="does not follow"):
        net.executors["a"].begin(late, {"input_ids": np.zeros((1, 4), np.int64)})
    hidden = {"hidden_1": np.zeros((1, 4, HIDDEN), np.float32)}
    with pytest.raises(RunError, match="does not follow"):
        net.executors["b"].deliver("a", late, hidden)


def test_a_device_holds_no_more_than_a_prompt(build: Path) -> None:
    net = network(build)
    begin(net)
    net.advance()
    first = next(i for i, item in enumerate(net.air) if item[0] == "b")
    device, peer, step, values = net.air[first]
    net.deliver(first)
    far = replace(step, step=1 + LENGTH // CHUNK, opening=None)
    with pytest.raises(RunError, match="with other sizes than here"):
        net.executors[device].deliver(peer, far, values)


# -- rings


@pytest.fixture(scope="module", params=[language_model, returning_model], ids=["once", "returning"])
def ring(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRing]:
    made: Build = request.param(prompt_chunk=CHUNK)
    with launch_local(made.write(tmp_path_factory.mktemp("ring") / "build")) as started:
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
def test_a_ring_of_one(tmp_path: Path) -> None:
    """The same tokens as of a whole prompt, while another request is in flight; logits as close as rounding is."""
    found = []
    for name, size in (("parts", CHUNK), ("whole", None)):
        with launch_local(alone(size).write(tmp_path / name)) as ring, ring.client() as client:
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
def test_what_crosses_a_link_is_that_of_a_whole_prompt(ring: LocalRing, tmp_path: Path) -> None:
    def crossed(of: LocalRing) -> dict[tuple[str, str, str], np.ndarray[Any, Any]]:
        with of.client() as client:
            trace = client.generate(PROMPT, 2, ignore_eos=True, trace=True).trace
        rows: dict[tuple[str, str, str], list[np.ndarray[Any, Any]]] = {}
        for item in sorted(trace, key=lambda item: item.step):
            for name, array in item.values.items():
                rows.setdefault((name, item.peer, item.device), []).append(array.reshape(-1, array.shape[-1]))
        return {place: np.concatenate(arrays) for place, arrays in rows.items()}

    model = language_model if "c" in ring.pids else returning_model
    with launch_local(model().write(tmp_path / "build")) as unchunked:
        whole = crossed(unchunked)
    parts = crossed(ring)
    assert set(parts) == set(whole)
    for place, rows in whole.items():
        assert np.allclose(parts[place].reshape(rows.shape), rows, atol=1e-6), place


@pytest.mark.ort
def test_a_part_that_fails_ends_the_request(tmp_path: Path) -> None:
    """A device that was given another build's size does not know the phase."""
    build = language_model(prompt_chunk=CHUNK).write(tmp_path / "build")
    middle = build / "devices" / "b" / "build.json"
    model = {**load_model(middle), "prompt_chunk": None}
    reseal(middle, model=model)
    with launch_local(build) as ring, ring.client() as client:
        with pytest.raises(RunError, match="no step of 'chunk'"):
            client.generate(PROMPT, COUNT)
        # Every part fails by itself, and with each all that is in flight.
        time.sleep(0.5)
        assert client.generate(PROMPT[:CHUNK], COUNT, ignore_eos=True).tokens == [
            expected_tokens(PROMPT[:CHUNK], COUNT)
        ]


def load_model(manifest: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads(manifest.read_text())["model"]
    return model
