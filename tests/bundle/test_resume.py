"""Files of earlier builds are copied where nothing of them changed, and only there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.bundle import copying, resume, streaming
from partc.bundle.copying import copy_file, copy_range
from partc.bundle.resume import RECORDS, Earlier, tensor_hash
from partc.bundle.writer import write_bundle
from partc.format.files import hash_folder
from partc.ir.graph import ModelInfo, Module, Part, Weight
from partc.ir.weights import Leaf, Step
from partc.pipeline.contract import NO_STORE, Artifact, Progress, TensorStore
from targets import weights
from targets.null import NullTarget
from targets.weights import write_weights
from tests.bundle.tiny import module, write_checkpoint

WEIGHTS = "devices/phone/weights/part_0.safetensors"


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all tensors that are computed; target null writes its weights, as other targets do."""
    names: list[str] = []
    emit, stream = NullTarget.emit, streaming.stream_weights

    def emit_weights(
        self: NullTarget, part: Part, info: ModelInfo, folder: Path, progress: Progress,
        store: TensorStore = NO_STORE,
    ) -> Artifact:  # fmt: skip
        write_weights({graph.name: graph.weights() for graph in part.graphs}, info, folder, progress, store)
        return emit(self, part, info, folder, progress, store)

    def recorded(wanted: list[Weight], *rest: Any) -> Iterator[tuple[str, Any]]:
        names.extend(weight.name for weight in wanted)
        return stream(wanted, *rest)

    monkeypatch.setattr(NullTarget, "emit", emit_weights)
    monkeypatch.setattr(weights, "stream_weights", recorded)
    return names


def compiled(tmp_path: Path) -> Module:
    checkpoint = tmp_path / "model"
    return module(checkpoint if checkpoint.exists() else write_checkpoint(checkpoint), "null")


def build(tmp_path: Path, name: str = "build", model: Module | None = None) -> Path:
    write_bundle(model or compiled(tmp_path), tmp_path / name)
    return tmp_path / name


def contents(folder: Path) -> Mapping[str, Any]:
    """Hashes of all devices' files but keys."""
    return {name: value for name, value in hash_folder(folder / "devices").items() if "keys/" not in name}


def scale_the_norm(model: Module) -> None:
    """Change what one tensor of the phone is made from."""
    norm = next(w for w in (model.parts or [])[0].graphs[0].weights() if w.name == "l0.norm")
    assert norm.source is not None
    norm.source = Step("mul", (2.0,), norm.source)


def test_equal_inputs_compute_nothing_again(tmp_path: Path, streamed: list[str]) -> None:
    before = contents(build(tmp_path))
    assert "l0.norm" in streamed
    streamed.clear()
    assert contents(build(tmp_path)) == before
    assert streamed == []


def test_a_second_compile_changes_no_byte_of_the_records(tmp_path: Path, streamed: list[str]) -> None:
    before = hash_folder(build(tmp_path) / RECORDS)
    assert hash_folder(build(tmp_path) / RECORDS) == before != {}


def test_only_changed_tensors_are_computed(tmp_path: Path, streamed: list[str]) -> None:
    build(tmp_path)
    streamed.clear()
    changed = compiled(tmp_path)
    scale_the_norm(changed)
    folder = build(tmp_path, model=changed)
    assert streamed == ["l0.norm"]
    fresh = compiled(tmp_path)
    scale_the_norm(fresh)
    assert contents(folder) == contents(build(tmp_path, "fresh", fresh))


def test_tensors_are_found_on_whatever_device_they_were(tmp_path: Path, streamed: list[str]) -> None:
    build(tmp_path)
    streamed.clear()
    moved = compiled(tmp_path)
    phone, board = moved.parts or []
    phone.graphs, board.graphs = board.graphs, phone.graphs
    folder = build(tmp_path, model=moved)
    assert streamed == []
    fresh = compiled(tmp_path)
    phone, board = fresh.parts or []
    phone.graphs, board.graphs = board.graphs, phone.graphs
    assert contents(folder) == contents(build(tmp_path, "fresh", fresh))


def test_another_checkpoint_is_computed_anew(tmp_path: Path, streamed: list[str]) -> None:
    build(tmp_path)
    streamed.clear()
    path = tmp_path / "model" / "a.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)  # of the same size: the time tells
    build(tmp_path)
    assert "l0.norm" in streamed
    assert "l1.norm" not in streamed  # it lies in the other shard


def test_another_file_of_equal_size_and_time_is_another_checkpoint(
    tmp_path: Path, streamed: list[str]
) -> None:
    """`cp -p` and archives leave such a file."""
    build(tmp_path)
    streamed.clear()
    path = tmp_path / "model" / "a.safetensors"
    status, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.with_suffix(".new").write_bytes(data)
    os.utime(path.with_suffix(".new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    path.with_suffix(".new").replace(path)
    build(tmp_path)
    assert "l0.norm" in streamed


def test_a_checkpoint_that_changes_while_it_is_read(
    tmp_path: Path, streamed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is of the file as it was before: the next compile computes the tensor anew."""
    path, stream = tmp_path / "model" / "a.safetensors", vars(weights)["stream_weights"]

    def touched(*arguments: Any) -> Iterator[tuple[str, Any]]:
        os.utime(path, ns=(1, 1))
        yield from stream(*arguments)

    monkeypatch.setattr(weights, "stream_weights", touched)
    build(tmp_path)
    streamed.clear()
    build(tmp_path)
    assert "l0.norm" in streamed


@pytest.mark.parametrize("touched", [False, True])
def test_a_file_that_changed_is_not_believed(tmp_path: Path, streamed: list[str], touched: bool) -> None:
    folder = build(tmp_path)
    before = contents(folder)
    path = folder / WEIGHTS
    status = path.stat()
    data = bytearray(path.read_bytes())
    if not touched:
        data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    streamed.clear()
    assert contents(build(tmp_path)) == before
    assert ("l0.norm" in streamed) == (not touched)  # where the time alone changed, the hash is asked


def test_damage_that_size_and_time_do_not_show_is_mended_without_reuse(
    tmp_path: Path, streamed: list[str]
) -> None:
    folder = build(tmp_path)
    before = contents(folder)
    path = folder / WEIGHTS
    status = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    streamed.clear()
    write_bundle(compiled(tmp_path), folder, reuse=False)
    assert "l0.norm" in streamed
    assert contents(folder) == before


@pytest.mark.parametrize("gone", [WEIGHTS, f"{RECORDS}/phone.json"])
def test_what_is_gone_is_made_again(tmp_path: Path, streamed: list[str], gone: str) -> None:
    folder = build(tmp_path)
    before = contents(folder)
    (folder / gone).unlink()
    streamed.clear()
    assert contents(build(tmp_path)) == before
    assert "l0.norm" in streamed
    assert "l1.norm" not in streamed


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("inputs"),
        lambda record: record["files"].update({"../../../secret": {"bytes": 3, "sha256": ""}}),
        lambda record: record["tensors"].update(x=["/etc/passwd", 0]),
        lambda record: record.update(artifact=None),
        lambda record: record.update(files=7),
        lambda record: record.update(times=7),
        lambda record: record["files"].update({"part_0.partc": {"bytes": "many"}}),
        lambda record: record["tensors"].update(x=7),
    ],
)
def test_damaged_records_are_not_read(tmp_path: Path, streamed: list[str], change: Any) -> None:
    folder = build(tmp_path)
    before = contents(folder)
    path = folder / RECORDS / "phone.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    streamed.clear()
    assert contents(build(tmp_path)) == before
    assert "l0.norm" in streamed


def test_an_old_build_that_goes_while_it_is_copied(
    tmp_path: Path, streamed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(build(tmp_path))
    streamed.clear()

    def gone(*_: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(resume, "copy_file", gone)
    monkeypatch.setattr(resume, "copy_range", gone)
    assert contents(build(tmp_path)) == before
    assert "l0.norm" in streamed


def test_another_compile_may_replace_the_old_build(tmp_path: Path, streamed: list[str]) -> None:
    """An open file stays the same, whatever takes its place."""
    folder, info = build(tmp_path), compiled(tmp_path).info
    norm = next(w for w in (compiled(tmp_path).parts or [])[0].graphs[0].weights() if w.name == "l0.norm")
    earlier = Earlier([folder])
    first = earlier.find(tensor_hash(norm, info))
    assert first is not None
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).write_bytes(bytes(10_000))
    assert earlier.find(tensor_hash(norm, info)) == first
    first[0].seek(first[1])
    found = np.frombuffer(first[0].read(norm.bytes({})), np.float32)
    earlier.close()
    np.testing.assert_array_equal(found, _norm(tmp_path))


def _norm(tmp_path: Path) -> Any:
    from partc.bundle.tensors import open_tensors

    return open_tensors(compiled(tmp_path).info)(Leaf("a.safetensors", "l0.norm"))


def test_keys_of_an_old_build_are_not_taken_over_with_its_files(tmp_path: Path, streamed: list[str]) -> None:
    folder = build(tmp_path)
    shutil.rmtree(folder / "devices" / "board")  # other devices: new keys
    secrets = {path.name: path.read_bytes() for path in (folder / "devices" / "phone" / "keys").iterdir()}
    build(tmp_path)
    after = {path.name: path.read_bytes() for path in (folder / "devices" / "phone" / "keys").iterdir()}
    assert secrets.keys() == after.keys()
    assert all(secrets[name] != after[name] for name in secrets)


def test_hashes_of_tensors_tell_apart_what_differs(tmp_path: Path) -> None:
    info = compiled(tmp_path).info
    leaf = Leaf("a.safetensors", "l0.q")
    unlike = [
        Weight("w", "f32", (32, 32), source=leaf),
        Weight("w", "f32", (1, 32), source=leaf),
        Weight("w", "f16", (32, 32), source=leaf),
        Weight("w", "f32", (32, 32), source=Leaf("a.safetensors", "l0.k")),
        Weight("w", "f32", (32, 32), source=Leaf("b.safetensors", "l0.q")),
        Weight("w", "f32", (32, 32), source=Step("transpose", (1, 0), leaf)),
    ]
    assert len({tensor_hash(weight, info) for weight in unlike}) == len(unlike)
    twin = Weight("other name", "f32", (32, 32), source=Leaf("a.safetensors", "l0.q"))
    assert tensor_hash(twin, info) == tensor_hash(unlike[0], info)


@pytest.mark.parametrize("system_copies", [True, False])
def test_copies_are_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system_copies: bool
) -> None:
    data = bytes(range(256)) * 40
    (tmp_path / "old").write_bytes(data)
    (tmp_path / "old").chmod(0o750)
    os.utime(tmp_path / "old", ns=(5, 7))
    monkeypatch.setattr(copying, "_STEP_BYTES", 1000)
    monkeypatch.setattr(copying, "_BUFFER_BYTES", 300)
    if not system_copies:
        monkeypatch.setattr(os, "copy_file_range", _refuse)
    copied: list[int] = []
    with (tmp_path / "old").open("rb") as old:
        copy_file(old, tmp_path / "new", copied.append)
        with (tmp_path / "part").open("wb") as part:
            copy_range(old, 100, part, 50, 5000, copied.append)
    status = (tmp_path / "new").stat()
    assert (tmp_path / "new").read_bytes() == data
    assert (tmp_path / "part").read_bytes() == bytes(50) + data[100:5100]
    assert sum(copied) == len(data) + 5000
    assert (status.st_nlink, status.st_mode & 0o777, status.st_mtime_ns) == (1, 0o750, 7)


def test_a_file_that_ends_too_early_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(bytes(10))
    ended = pytest.raises(OSError, match="ends after 10 of 11 bytes")
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("wb") as new, ended:
        copy_range(old, 0, new, 0, 11, lambda _: None)


def _refuse(*_: Any) -> int:
    raise OSError("not supported")
