"""The files of a build, which are there as a whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.bundle import workspace, writer
from partc.bundle.describe import describe_builds, weights_bytes
from partc.bundle.tokenizer import copy_tokenizer
from partc.bundle.writer import write_bundle
from partc.errors import BundleError, ModelError
from partc.format.files import hash_folder, verify_files
from partc.format.plan import Copy, Holding, Overlap, PlanFile
from partc.format.role import load_role
from partc.ir.graph import Graph, ModelInfo, Node, Value, Weight
from partc.ir.panels import panels
from partc.ir.weight_formats import format_of, quantize, scales
from partc.ir.weights import Leaf, Step
from partc.pipeline.registry import load_target
from partc.runtime.shell.keys import SECRET_FILE
from targets.null import NullTarget
from tests.bundle.tiny import module, write_checkpoint

TARGETS = ["null", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("ort", "tvm"))]


def build(tmp_path: Path, name: str = "build", target: str = "null") -> Path:
    checkpoint = tmp_path / "model"
    compiled = module(checkpoint if checkpoint.exists() else write_checkpoint(checkpoint), target)
    for part in compiled.parts or ():
        part.graphs = load_target(target).lower(part.graphs, compiled.info)
    write_bundle(compiled, tmp_path / name)
    return tmp_path / name


def builds(folder: Path) -> dict[str, Any]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("devices/*/build.json")}


def placement(folder: Path) -> dict[str, Any]:
    """placement.json, which all devices have alike."""
    (text,) = {path.read_text() for path in folder.glob("devices/*/placement.json")}
    return dict(json.loads(text))


def contents(folder: Path) -> dict[str, Any]:
    """Hashes of everything but keys and what is no part of the bundle."""
    outside = ("keys/", "runs/")
    return {name: value for name, value in hash_folder(folder).items() if not any(o in name for o in outside)}


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("target", TARGETS)
def test_the_runner_reads_what_was_written(tmp_path: Path, target: str) -> None:
    folder = build(tmp_path, target=target)
    for device in builds(folder):
        verify_files(folder / "devices" / device, load_role(folder / "devices" / device).files)


def test_the_files_say_who_does_what(tmp_path: Path) -> None:
    folder = build(tmp_path)
    ring, (phone, board) = placement(folder), (builds(folder)[name] for name in ("phone", "board"))
    assert phone["plan_id"] == board["plan_id"] == ring["plan_id"]
    assert (ring["source"], ring["ring"]) == ("phone", ["phone", "board"])
    assert [stage["devices"] for stage in ring["stages"]["decode"]] == [["phone"], ["board"]]
    assert set(ring["programs"]["prefill"]) == {"phone", "board"}
    assert phone["inputs"] == [{"name": "input_ids", "dtype": "int64", "shape": ["batch", "sequence"]}]
    assert phone["outputs"] == [{"name": "token", "dtype": "int64", "shape": ["batch"]}]
    assert phone["values"]["h1"] == {"dtype": "float32", "shape": ["batch", "sequence", 32]}
    assert board["dims"] == {"batch": 2, "sequence": 12}
    assert (
        board["memory"]["state_bytes"] == 2 * (2 * 2 * 12 * 8 * 4) * 2
    )  # requests × (batch, heads, rows, size, f32) × states


def test_a_build_has_what_concerns_its_device_of_the_overlap(tmp_path: Path) -> None:
    compiled = module(write_checkpoint(tmp_path / "model"), "null")
    shared = [{"submodule": 1, "devices": ["board", "phone"]}, {"submodule": 4, "devices": ["board", "old"]}]
    devices = {"phone": Holding((0, 1), (), 1, 2), "board": Holding((1, 4), (), 1, 2)}
    copies = Copy(1, ("board", "phone")), Copy(4, ("board", "old"))
    compiled.plan = PlanFile(overlap=Overlap(2, 2, devices, copies))
    write_bundle(compiled, tmp_path / "build")
    found = builds(tmp_path / "build")
    assert found["phone"]["overlap"] == {"movable": [0, 1], "unmovable": [], "shared": shared[:1]}
    assert found["board"]["overlap"] == {"movable": [1, 4], "unmovable": [], "shared": shared}
    for device in found:
        load_role(tmp_path / "build" / "devices" / device)


def test_the_tokenizer_goes_to_the_source_alone(tmp_path: Path) -> None:
    folder = build(tmp_path)
    assert [path.parent.parent.name for path in folder.rglob("tokenizer.json")] == ["phone"]


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("target", TARGETS)
def test_equal_inputs_give_equal_bytes(tmp_path: Path, target: str) -> None:
    first, second = build(tmp_path, "one", target), build(tmp_path, "two", target)
    assert contents(first) == contents(second)
    assert str(tmp_path) not in "".join(
        path.read_text(errors="ignore") for path in first.rglob("*") if path.is_file()
    )


def test_another_model_is_another_plan_id(tmp_path: Path) -> None:
    before = builds(build(tmp_path))["phone"]["plan_id"]
    compiled = module(tmp_path / "model", "null")
    compiled.info = replace(compiled.info, eos_token_ids=(1,))
    write_bundle(compiled, tmp_path / "other")
    assert builds(tmp_path / "other")["phone"]["plan_id"] != before


def test_other_programs_are_another_placement_of_the_same_plan(tmp_path: Path) -> None:
    before = placement(build(tmp_path))
    compiled = module(tmp_path / "model", "null")
    programs = (compiled.parts or [])[0].programs
    programs["decode"] = (*programs["decode"], programs["decode"][-1])
    write_bundle(compiled, tmp_path / "other")
    after = placement(tmp_path / "other")
    assert after["plan_id"] == before["plan_id"]
    assert after["placement_id"] != before["placement_id"]


def test_keys_and_runs_survive_a_second_compile(tmp_path: Path) -> None:
    folder = build(tmp_path)
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / "1.json").write_text("{}")
    secret = (folder / "devices" / "phone" / "keys" / SECRET_FILE).read_text()
    build(tmp_path)
    assert (folder / "devices" / "phone" / "keys" / SECRET_FILE).read_text() == secret
    assert (folder / "devices" / "phone" / "keys" / SECRET_FILE).stat().st_mode & 0o077 == 0
    assert (folder / "runs" / "1.json").exists()


def test_new_devices_get_new_keys(tmp_path: Path) -> None:
    folder = build(tmp_path)
    secret = (folder / "devices" / "phone" / "keys" / SECRET_FILE).read_text()
    shutil.rmtree(folder / "devices" / "board")
    build(tmp_path)
    assert (folder / "devices" / "phone" / "keys" / SECRET_FILE).read_text() != secret


@pytest.mark.parametrize("name", ["notes.txt", "plan.json"])
def test_a_folder_that_is_no_build_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / name).write_text("mine")
    with pytest.raises(BundleError, match="no build of partc's"):
        build(tmp_path)
    assert (tmp_path / "build" / name).read_text() == "mine"
    assert not list(tmp_path.glob("build.partial-*"))


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


def test_a_killed_compile_leaves_no_build_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[str] = []
    emit = NullTarget.emit

    def counted(self: NullTarget, part: Any, *rest: Any) -> Any:
        if part.device == "board" and "board" not in emitted:
            emitted.append("board")
            raise Killed
        emitted.append(part.device)
        return emit(self, part, *rest)

    monkeypatch.setattr(NullTarget, "emit", counted)
    with pytest.raises(Killed):
        build(tmp_path)
    assert not (tmp_path / "build").exists()
    assert len(list(tmp_path.glob("build.partial-*"))) == 1
    folder = build(tmp_path)
    assert emitted == ["phone", "board", "board"]  # the phone's files were taken over
    assert not list(tmp_path.glob("build.*"))
    monkeypatch.undo()
    assert contents(folder) == contents(build(tmp_path, "fresh"))


@pytest.mark.parametrize("finished", [0, 1])
def test_however_often_a_compile_fails_it_leaves_what_is_finished_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: int
) -> None:
    emit = NullTarget.emit

    def failing(self: NullTarget, part: Any, *rest: Any) -> Any:
        if part.device == ("phone", "board")[finished]:
            raise ModelError("the checkpoint lacks a tensor")
        return emit(self, part, *rest)

    monkeypatch.setattr(NullTarget, "emit", failing)
    for _ in range(3):
        with pytest.raises(ModelError, match="lacks"):
            build(tmp_path)
        left = list(tmp_path.glob("build.partial-*"))
        assert [len(list(folder.glob("runs/parts/*"))) for folder in left] == [1] * finished


def test_a_new_folder_that_another_compile_locks_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the folder for a leftover, in the moment before it was locked."""
    taken: list[int] = []
    flock = fcntl.flock

    def locked(handle: int, operation: int) -> None:
        if not taken:
            (folder,) = tmp_path.glob("build.partial-*")
            taken.append(os.open(folder, os.O_RDONLY))
            flock(taken[0], operation)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", locked)
    folder = build(tmp_path)
    (left,) = tmp_path.glob("build.partial-*")  # the other compile is at work in it
    monkeypatch.undo()
    os.close(taken[0])
    verify_files(folder / "devices" / "phone", load_role(folder / "devices" / "phone").files)
    build(tmp_path)
    assert not left.exists()


def test_what_came_to_the_output_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def slow(*arguments: Any) -> Any:
        (tmp_path / "build").mkdir()
        (tmp_path / "build" / "notes.txt").write_text("mine")
        return describe_builds(*arguments)

    monkeypatch.setattr(writer, "describe_builds", slow)
    with pytest.raises(BundleError, match="no build of partc's"):
        build(tmp_path)
    assert (tmp_path / "build" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("can_exchange", [True, False])
def test_two_compiles_at_once_end_as_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    """The other one puts its build in place after this one looked for an old build."""
    others: list[Path] = []

    def slow(*arguments: Any) -> Any:
        if not others:
            others.append(tmp_path / "build")
            build(tmp_path)
        return describe_builds(*arguments)

    monkeypatch.setattr(writer, "describe_builds", slow)
    if not can_exchange:
        monkeypatch.setattr(workspace, "_exchange", lambda *_: False)
    folder = build(tmp_path)
    verify_files(folder / "devices" / "phone", load_role(folder / "devices" / "phone").files)
    assert [path.name for path in tmp_path.glob("build*")] == ["build"]


def test_memory_counts_once_what_is_stored_once() -> None:
    """A table of tokens in 4 bits and the head that is tied to it differ in shape alone."""
    packed = Step("quantize", (4, 32), Leaf("f", "embed"))
    head = Weight("head", "u8", (10, 2, 16), source=packed)
    table = Weight("table", "u8", (10, 32), source=Step("reshape", (10, 32), packed))
    scales = Weight("scales", "f32", (10, 2), source=Step("scales", (4, 32), Leaf("f", "embed")))
    nodes = [Node("partc.QuantizedMatMul", [head, table, scales], [Value("y")])]
    assert weights_bytes([Graph("g", [], [], nodes)], load_target("ort").stored_bytes) == 10 * 32 + 10 * 2 * 4


@pytest.mark.parametrize(
    ("rows", "bits", "block"),
    [(10, 4, 32), (64, 4, 128), (200, 4, 64), (10, 8, 0), (64, 8, 0), (70, 8, 16), (10, 8, 64)],
)
def test_memory_counts_panels_as_they_are_stored(rows: int, bits: int, block: int) -> None:
    matrix = np.ones((rows, 256), np.float32)
    source = Leaf("f", "w")
    shape = quantize(matrix, bits, block).shape
    data = Weight("data", format_of(bits, block).dtype, shape, source=Step("quantize", (bits, block), source))
    scale = Weight(
        "scale", "f32", scales(matrix, bits, block).shape, source=Step("scales", (bits, block), source)
    )
    nodes = [Node("partc.QuantizedMatMul", [data, scale], [Value("y")])]
    found = weights_bytes([Graph("g", [], [], nodes)], load_target("tvm").stored_bytes)
    assert found == panels(matrix, bits, block).nbytes


def test_damaged_leftovers_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "commit", lambda *_: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        build(tmp_path)
    monkeypatch.undo()
    (leftover,) = tmp_path.glob("build.partial-*")
    (leftover / "devices" / "phone" / "part_0.partc").write_text("damaged")
    (leftover / "devices" / "board" / "part_1.partc").unlink()
    folder = build(tmp_path)
    verify_files(folder / "devices" / "phone", load_role(folder / "devices" / "phone").files)
    assert contents(folder) == contents(build(tmp_path, "fresh"))


def test_a_failed_compile_keeps_the_old_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tmp_path)
    before = hash_folder(folder)
    monkeypatch.setattr(NullTarget, "emit", lambda *_: (_ for _ in ()).throw(Killed()))
    compiled = module(tmp_path / "model", "null")
    compiled.info = replace(compiled.info, max_requests=3)  # else nothing would be emitted anew
    with pytest.raises(Killed):
        write_bundle(compiled, folder)
    assert hash_folder(folder) == before


def test_a_tokenizer_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    info = ModelInfo("m", "text-generation", folder=str(tmp_path))
    with pytest.raises(ModelError, match="not a tokenizer"):
        copy_tokenizer(info, tmp_path / "device")


def test_a_model_of_a_config_has_the_tokenizer_that_it_is_given(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 9}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    )
    info = ModelInfo("m", "text-generation", random={"config": {}, "seed": 0}, vocab_size=10)
    copy_tokenizer(info, tmp_path / "without")
    assert not (tmp_path / "without").exists()
    given = replace(info, tokenizer=str(tmp_path))
    copy_tokenizer(given, tmp_path / "device")
    assert (tmp_path / "device" / "tokenizer" / "tokenizer.json").is_file()
    with pytest.raises(
        ModelError, match=r"has 10 tokens, and by its config the model has 9(.|\n)*vocab_size: 10"
    ):
        copy_tokenizer(replace(given, vocab_size=9), tmp_path / "other")


def test_a_pointer_of_git_lfs_is_no_tokenizer(tmp_path: Path) -> None:
    info = ModelInfo("m", "text-generation", folder=str(tmp_path))
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(ModelError, match="git-lfs"):
            copy_tokenizer(info, tmp_path / "device")


def test_byte_order_marks_do_not_reach_readers_of_json(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    texts = {
        "tokenizer.json": json.dumps({"version": "1.0", "added_tokens": [], "model": model}),
        "tokenizer_config.json": "{}",
        "chat_template.jinja": "hello",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    copy_tokenizer(ModelInfo("m", "text-generation", folder=str(tmp_path)), tmp_path / "device")
    assert {path.name: path.read_text() for path in (tmp_path / "device" / "tokenizer").iterdir()} == texts
