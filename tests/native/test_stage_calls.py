"""Calls of the library of stages: what it says of itself, and an error for every wrong one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.native.compiled import need
from tests.native.stages import BUILDS, HEADER, into_python, shared_library, stage_module
from tests.runtime.bundles import LENGTH, VOCABULARY

pytestmark = pytest.mark.native
stage = stage_module

FUNCTIONS = 12


@pytest.fixture
def two(stage: ModuleType, tmp_path: Path) -> Any:
    """The middle stage of a ring of three, with requests in slots 0 and 1."""
    opened = stage.Stage(str(BUILDS["three"](tmp_path) / "devices" / "b"))
    opened.reset(0)
    opened.reset(1)
    return opened


def floats(count: int) -> bytes:
    return np.arange(count, dtype=np.float32).tobytes()


@into_python
def test_a_stage_is_described(stage: ModuleType, two: Any) -> None:
    facts = two.facts()
    assert (facts.device, facts.source, facts.task, facts.target) == (b"b", b"a", b"text-generation", b"null")
    assert (facts.slots, facts.max_batch, facts.max_sequence, facts.vocabulary) == (3, 3, LENGTH, VOCABULARY)
    phases = [facts.phases[at] for at in range(4)]
    assert phases[:3] == [b"decode", b"prefill", b"replay"]
    assert phases[3] is None
    found = [(v.name, v.peer, v.direction, v.dtype, v.message, v.order) for v in two.values("decode")]
    assert found == [(b"hidden_1", b"a", stage.RECEIVED, 1, 0, 0), (b"hidden_2", b"c", stage.SENT, 1, 1, 2)]
    (state,) = two.states()
    assert (state.name, state.is_whole, state.positions, state.heads, state.width) == (
        b"cache.0.key",
        0,
        LENGTH,
        1,
        8,
    )
    assert two.shape(stage.step_of("prefill", 5, 0), "hidden_2") == [1, 5, 8]


Calls = Callable[[ModuleType, Any], object]


def computes(given: int = 8, name: str = "hidden_1", **fields: Any) -> Calls:
    """A call with a step of one token, of which some fields are other ones."""

    def call(module: ModuleType, opened: Any) -> object:
        made = {key: each(module) if callable(each) else each for key, each in fields.items()}
        step = module.step_of("decode", 1, 2)
        for key, each in made.items():
            setattr(step, key, each)
        return opened.step(step, {name: floats(given)})

    return call


def ints(*values: int) -> Callable[[ModuleType], object]:
    return lambda module: module.numbers(*values)


def drawing(*fields: float) -> Callable[[ModuleType], object]:
    return lambda module: (module.Sampling * 1)(module.Sampling(*fields))


def source_of(size: int) -> Callable[[ModuleType], object]:
    return lambda module: (module.Size * 1)(module.Size(b"source", size))


WRONG: dict[str, tuple[Calls, str]] = {
    "phase": (computes(phase=b"encode"), "there is no phase 'encode'\n  hint: this stage has"),
    "input": (computes(name="hidden_2"), "takes no 'hidden_2'"),
    "size": (computes(7), "'hidden_1' has 32 bytes of float32, and was given 28"),
    "position": (computes(position=ints(LENGTH)), "max_sequence is 24"),
    "negative": (computes(position=ints(-1)), "a position is -1, below 0"),
    "length": (computes(length=ints(2)), "2 of 1 tokens at position 2"),
    "slot": (computes(slots=ints(3)), "there is no slot 3"),
    "no reset": (computes(slots=ints(2)), "no request has begun in slot 2"),
    "another batch": (computes(16, batch=2, position=ints(2, 2)), "has 1 sequences, the step 2"),
    "too many": (computes(32, batch=4, position=ints(2, 2, 2, 2)), "at most 3 is planned for"),
    "shared": (
        computes(16, batch=2, position=ints(2, 2), slots=ints(0, 1), slot_count=2),
        "batch is 2, at most 1 is planned for",
    ),
    "slots": (computes(slots=ints(0, 1), slot_count=2), "2 slots; a step has one"),
    "no slot": (computes(slot_count=0), "0 slots; a step has one"),
    "temperature": (computes(sampling=drawing(float("nan"), 0, 1, 0)), "temperature must be"),
    "top_p": (computes(sampling=drawing(1, 0, 0, 0)), "top_p above 0"),
    "top_k": (computes(sampling=drawing(1, -1, 1, 0)), "top_k is -1, below 0"),
    "symbol": (computes(sizes=source_of(3), size_count=1), "source is 3, at most 0 is planned for"),
    "no position": (computes(position=None), "batch is 1, and the list a null pointer"),
    "slot of reset": (lambda _, opened: opened.reset(9), "there is no slot 9"),
    "batch of reset": (lambda _, opened: opened.reset(0, 4), "4 sequences; a request has 1 to 3"),
    "state": (
        lambda _, opened: opened._call(
            "read_rows", *map(ctypes.c_int64, (0, 1, 0, 0, 1)), None, ctypes.c_int64(0)
        ),
        "there is no state 1; this stage has 1",
    ),
    "rows": (
        lambda _, opened: opened.write_rows(0, 0, 0, 0, 2, floats(8)),
        "these rows have 64 bytes, not 32",
    ),
    "positions": (
        lambda _, opened: opened.read_rows(0, 0, 0, 4, LENGTH + 1),
        "rows 4 to 25 are none of the 24",
    ),
    "row": (lambda _, opened: opened.read_rows(0, 0, 1, 0, 1), "there is no sequence 1 of 1"),
    "null": (lambda _, opened: opened._call("describe", None), "an argument is a null pointer"),
}
"""Each is refused; the texts are those of the core where the runner says the same."""


@into_python
@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_change_nothing(name: str, stage: ModuleType, two: Any) -> None:
    call, message = WRONG[name]
    two.step(stage.step_of("prefill", 2, 0), {"hidden_1": floats(16)})
    before = two.read_rows(0, 0, 0, 0, LENGTH)
    with pytest.raises(RuntimeError, match=message):
        call(stage, two)
    assert two.read_rows(0, 0, 0, 0, LENGTH) == before
    assert two.step(stage.step_of("decode", 1, 2), {"hidden_1": floats(8)})["hidden_2"]


@into_python
def test_a_step_that_waits_is_not_left(stage: ModuleType, tmp_path: Path) -> None:
    first = stage.Stage(str(BUILDS["returning"](tmp_path) / "devices" / "a"))
    first.reset(0)
    step, ids = stage.step_of("prefill", 2, 0), {"input_ids": stage.bytes_of([4, 5])}
    assert first.step(step, ids).keys() == {"h"}
    assert first.waits_for == "the step waits for m from b"
    with pytest.raises(RuntimeError, match="'input_ids' was given already"):
        first.step(step, ids)
    with pytest.raises(RuntimeError, match="the last step in slot 0 is not over"):
        first.step(stage.step_of("decode", 1, 2), {"input_ids": stage.bytes_of([4])})
    right = first.step(step, {"m": floats(16)})
    assert right.keys() == {"logits", "token"}
    first.reset(0)
    first.step(step, ids)
    first.reset(0)  # drops the step
    first.step(step, ids)
    assert first.step(step, {"m": floats(16)}) == right


@into_python
def test_token_ids_are_held_against_the_vocabulary(stage: ModuleType, tmp_path: Path) -> None:
    source = stage.Stage(str(BUILDS["three"](tmp_path) / "devices" / "a"))
    source.reset(0)
    for token, message in ((VOCABULARY, "is not below vocab_size"), (-1, "token -1 is below 0")):
        with pytest.raises(RuntimeError, match=message):
            source.step(stage.step_of("prefill", 1, 0), {"input_ids": stage.bytes_of([token])})
    assert source.step(stage.step_of("prefill", 1, 0), {"input_ids": stage.bytes_of([VOCABULARY - 1])})


@into_python
def test_a_step_that_has_nothing_left_to_compute_may_be_left(stage: ModuleType, tmp_path: Path) -> None:
    """The source need not learn the token that it goes on with."""
    source = stage.Stage(str(BUILDS["three"](tmp_path) / "devices" / "a"))
    source.reset(0)
    for position in range(3):
        step = stage.step_of("decode" if position else "prefill", 1, position)
        assert source.step(step, {"input_ids": stage.bytes_of([4])}).keys() == {"embed", "hidden_1"}
        assert source.waits_for == "the step waits for token from c"


@into_python
@pytest.mark.parametrize("damage", ["missing", "flipped", "not of it"])
def test_a_damaged_folder_is_refused(damage: str, stage: ModuleType, tmp_path: Path) -> None:
    folder = BUILDS["three"](tmp_path) / "devices" / "b"
    file = folder / "part_1.txt"
    if damage == "missing":
        file.unlink()
    elif damage == "flipped":
        file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    else:
        (folder / "more.bin").write_text("")
    with pytest.raises(RuntimeError, match=r"part_1\.txt|more\.bin"):
        stage.Stage(str(folder))


def test_the_library_shows_nothing_but_its_functions() -> None:
    need(None if shutil.which("nm") else "no nm (binutils)")
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", shared_library()], capture_output=True, text=True, check=True
    )
    shown = {line.split()[-1] for line in listed.stdout.splitlines()}
    declared = {
        name for name in HEADER.read_text().replace("(", " ").split() if name.startswith("partc_stage_")
    }
    assert len(shown) == FUNCTIONS
    assert shown == {name for name in declared if f" {name}(" in HEADER.read_text()} - {"partc_stage_abi()"}


@pytest.mark.parametrize("compiler", [("cc", "-std=c99"), ("c++", "-xc++", "-std=c++11")])
def test_the_header_is_that_of_c_and_of_cpp(compiler: Sequence[str], tmp_path: Path) -> None:
    need(None if shutil.which(compiler[0]) else f"no {compiler[0]}")
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([*compiler, *warnings, "-fsyntax-only", str(HEADER)], check=True)
