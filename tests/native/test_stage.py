"""The library of stages (docs/stage.md) beside Python's runner: the same bits, from C, Node and Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from partc.format.dtypes import Array
from partc.format.message_parts import Sampling
from partc.format.role import load_role
from tests.families.ring import DirectRing
from tests.native.compiled import need
from tests.native.stages import (
    BUILDS,
    EXAMPLES,
    HEADER,
    MARKS,
    STATEFUL,
    crossings,
    into_python,
    shared_library,
    stage_module,
    stages_of,
)

pytestmark = pytest.mark.native
stage = stage_module

PROMPT, COUNT = [5, 9, 2, 11, 7], 8


def cases(names: Sequence[str]) -> list[Any]:
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in names]


@pytest.fixture(scope="module")
def built_ring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, DirectRing]:
    """A build, and a ring of Python's cores and engines that has generated with it."""
    build = BUILDS[request.param](tmp_path_factory.mktemp(request.param))
    return build, DirectRing(build)


def steps_of(module: ModuleType, known: dict[int, dict[str, Array]], slot: int = 0) -> list[Any]:
    """The steps of a request, with the sizes that Python's source chose."""
    found, position = [], 0
    for number in sorted(known):
        cut = next(array for name, array in known[number].items() if array.ndim == 3 and name != "logits")
        rows = cut.shape[1]
        phase = "decode" if position >= len(PROMPT) else "chunk"
        if phase == "chunk" and position + rows >= len(PROMPT):
            phase = "prefill"
        found.append(module.step_of(phase, rows, position, slot))
        position += rows
    return found


def ids_of(module: ModuleType, step: Any, text: Sequence[int]) -> dict[str, bytes]:
    begin = step.position[0]
    return {"input_ids": module.bytes_of(text[begin : begin + step.sequence])}


@pytest.mark.in_turns(6)
@into_python
@pytest.mark.parametrize("built_ring", cases(tuple(BUILDS)), indirect=True)
def test_every_value_has_the_bits_of_pythons_runner(
    stage: ModuleType, built_ring: tuple[Path, DirectRing]
) -> None:
    build, ring = built_ring
    (tokens,) = ring.generate([PROMPT], COUNT)
    known, stages = crossings(ring, ring.requests), stages_of(stage, build)
    for step, right in zip(steps_of(stage, known), known.values(), strict=True):
        made = stage.values_of_ring(stages, step, ids_of(stage, step, [*PROMPT, *tokens]))
        assert right
        assert {name: made[name] for name in right} == {name: each.tobytes() for name, each in right.items()}


@pytest.mark.in_turns(3)
@into_python
@pytest.mark.parametrize("built_ring", cases(tuple(BUILDS)), indirect=True)
def test_the_chain_of_the_example_gives_the_tokens(
    stage: ModuleType, built_ring: tuple[Path, DirectRing]
) -> None:
    build, ring = built_ring
    assert stage.chain(stages_of(stage, build), PROMPT, COUNT) == ring.generate([PROMPT], COUNT)[0]


@into_python
@pytest.mark.parametrize("built_ring", cases(("three",)), indirect=True)
def test_a_chain_without_a_device_ends(stage: ModuleType, built_ring: tuple[Path, DirectRing]) -> None:
    build, _ = built_ring
    with pytest.raises(RuntimeError, match="a value comes from nowhere"):
        stage.chain(stages_of(stage, build)[:-1], PROMPT, COUNT)


@into_python
@pytest.mark.parametrize("built_ring", cases(("three", *STATEFUL)), indirect=True)
def test_a_request_goes_on_where_its_rows_went(
    stage: ModuleType, built_ring: tuple[Path, DirectRing]
) -> None:
    """In another slot of other stages, and not without its rows."""
    build, ring = built_ring
    (tokens,) = ring.generate([PROMPT], COUNT)
    known, text = crossings(ring, ring.requests), [*PROMPT, *tokens]
    here, there, nowhere = (stages_of(stage, build) for _ in range(3))
    steps = steps_of(stage, known)
    for step in steps[:-2]:
        stage.values_of_ring(here, step, ids_of(stage, step, text))
    position = steps[-2].position[0]
    for old, new in zip(here, there, strict=True):
        new.reset(1)
        for index, state in enumerate(new.states()):
            end = 1 if state.is_whole else position
            new.write_rows(1, index, 0, 0, end, old.read_rows(0, index, 0, 0, end))
    found = []
    for stages, slot in ((there, 1), (nowhere, 0)):
        last = [stage.step_of("decode", 1, position + more, slot) for more in (0, 1)]
        made = [stage.values_of_ring(stages, step, ids_of(stage, step, text)) for step in last]
        right = [known[number] for number in sorted(known)[-2:]]
        found.append([made[at]["logits"] == right[at]["logits"].tobytes() for at in (0, 1)])
    assert found == [[True, True], [False, False]]


@into_python
@pytest.mark.parametrize("built_ring", cases(("llama", "hybrid")), indirect=True)
def test_requests_share_steps(stage: ModuleType, built_ring: tuple[Path, DirectRing]) -> None:
    """The values of each row are those of the request alone."""
    build, _ = built_ring
    stages, prompts = stages_of(stage, build), ([5, 9, 2], [7, 1, 8, 30])

    def begin(slot: int) -> None:
        for each in stages:
            each.reset(slot)
        stage.step_of_ring(stages, stage.step_of("prefill", len(prompts[slot]), 0, slot), prompts[slot])

    def next_of(step: Any, *ids: int) -> dict[str, bytes]:
        made = stage.values_of_ring(stages, step, {"input_ids": stage.bytes_of(list(ids))})
        return {name: data for name, data in made.items() if name != "input_ids"}

    alone = []
    for slot, prompt in enumerate(prompts):
        begin(slot)
        alone.append(next_of(stage.step_of("decode", 1, len(prompt), slot), 3 + slot))
    for slot in (0, 1):
        begin(slot)
    positions = stage.numbers(*map(len, prompts))
    both = stage.Step(b"decode", 2, 1, positions, None, stage.numbers(0, 1), 2, None, None, 0)
    assert next_of(both, 3, 4) == {name: data + alone[1][name] for name, data in alone[0].items()}


@into_python
@pytest.mark.parametrize("built_ring", cases(("three", "onnx")), indirect=True)
def test_tokens_are_drawn_as_the_ring_draws_them(
    stage: ModuleType, built_ring: tuple[Path, DirectRing]
) -> None:
    build, ring = built_ring
    drawn = Sampling(temperature=1.5, top_k=9, top_p=0.95, seed=77)
    right = ring.drawn(PROMPT, COUNT, drawn)
    stages, text = stages_of(stage, build), [*PROMPT]
    ways = (stage.Sampling * 1)(stage.Sampling(drawn.temperature, drawn.top_k, drawn.top_p, drawn.seed))
    for number in range(COUNT):
        step = stage.step_of(
            "decode" if number else "prefill", 1 if number else len(PROMPT), len(text) - 1 if number else 0
        )
        step.sampling = ways
        text.append(stage.step_of_ring(stages, step, text[-1:] if number else text))
    assert text[len(PROMPT) :] == right
    assert text[len(PROMPT) :] != ring.generate([PROMPT], COUNT)[0]


@into_python
@pytest.mark.tvm
@pytest.mark.hf
def test_settling_changes_no_bits(stage: ModuleType, tmp_path: Path) -> None:
    build = BUILDS["llama"](tmp_path)
    stages = stages_of(stage, build)
    right = stage.chain(stages, PROMPT, COUNT)
    for each in stages:
        while each.settle():
            pass
    assert stage.chain(stages, PROMPT, COUNT) == right


def compiled_example(folder: Path) -> Path:
    """The example in C over the library that tests build."""
    need(None if shutil.which("cc") else "no cc")
    program, library = folder / "stage", shared_library()
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", HEADER.parent]
    command += [EXAMPLES / "stage.c", "-o", program, f"-L{library.parent}", "-lpartc_stage"]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{library.parent}"], check=True)
    return program


def compiled_addon(folder: Path) -> Path:
    """The addon of the example for Node."""
    need(None if shutil.which("node") else "no node (apt-get install nodejs)")
    headers = Path(shutil.which("node") or "").resolve().parents[1] / "include" / "node"
    need(None if (headers / "node_api.h").is_file() else "no headers of node (apt-get install libnode-dev)")
    addon, library = folder / "addon.node", shared_library()
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-I", headers, "-I", HEADER.parent]
    command += [EXAMPLES / "node" / "addon.c", "-o", addon, f"-L{library.parent}", "-lpartc_stage"]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{library.parent}"], check=True)
    return addon


def placed_first(build: Path) -> list[str]:
    """The values that the source sends in the first step, in order, before it waits."""
    text = load_role(build / "devices" / "a").placement.programs["prefill"]["a"]
    lines = [line.split() for line in text.partition("recv")[0].splitlines()]
    return [word.rstrip(",") for line in lines if line[0] == "send" for word in line[1 : line.index("to")]]


@pytest.mark.parametrize("language", ["c", "node"])
@pytest.mark.parametrize("built_ring", cases(("three", "returning", "llama")), indirect=True)
def test_the_other_examples_compute_the_same(
    language: str, built_ring: tuple[Path, DirectRing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, ring = built_ring
    if language == "c":
        command: list[str | Path] = [compiled_example(tmp_path)]
    else:
        monkeypatch.setenv("PARTC_STAGE_ADDON", str(compiled_addon(tmp_path)))
        command = ["node", EXAMPLES / "node" / "stage.mjs"]
    (tokens,) = ring.generate([PROMPT], COUNT)
    ids, folders = (
        ",".join(map(str, PROMPT)),
        sorted(path.parent for path in build.glob("devices/*/build.json")),
    )

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, (*command, *words))], capture_output=True, text=True, timeout=60, check=False
        )

    done = run("chain", ids, str(COUNT), *folders)
    assert (done.returncode, [int(word) for word in done.stdout.split()]) == (0, tokens), done.stderr
    assert run("one", folders[0], ids[:1], tmp_path / "cut").returncode == 0
    sent = placed_first(build)
    ring.generate([PROMPT[:1]], 1)  # longer ones may go in parts
    known = crossings(ring, ring.requests)[0]
    assert (tmp_path / "cut").read_bytes() == b"".join(known[name].tobytes() for name in sent)
    refused = run("one", tmp_path, ids, tmp_path / "cut")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        1,
        f"{tmp_path}: no bundle: there is no build.json",
    )
