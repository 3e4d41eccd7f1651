"""Reading checkpoints tensor by tensor, and what is said about those that do not fit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from partc.bundle.streaming import stream_weights
from partc.bundle.tensors import open_tensors
from partc.errors import ModelError
from partc.format.safetensors import Entry, lay_out, write_safetensors
from partc.ir.graph import ModelInfo, Weight
from partc.ir.weights import Join, Leaf, Step
from tests.bundle.tiny import tensors, write_checkpoint

LEAF = Leaf("a.safetensors", "l0.q")


def info(folder: Path) -> ModelInfo:
    return ModelInfo("m", "text-generation", folder=str(folder))


def values(weight: Weight, model: ModelInfo) -> npt.NDArray[Any]:
    """A weight as it is streamed, its pieces put together."""
    pieces = [piece for _, piece in stream_weights([weight], open_tensors(model), model)]
    return np.concatenate(pieces)


def test_tensors_of_a_sharded_checkpoint(tmp_path: Path) -> None:
    read = open_tensors(info(write_checkpoint(tmp_path)))
    for key, array in tensors().items():
        leaf = Leaf("b.safetensors" if key.startswith("l1") else "a.safetensors", key)
        np.testing.assert_array_equal(read(leaf), array)
        assert read(leaf).dtype == array.dtype


def test_links_of_a_hub_snapshot_are_followed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "a.safetensors").symlink_to(tmp_path / "blobs" / "a.safetensors")
    assert open_tensors(info(tmp_path / "snapshot"))(LEAF).shape == (32, 32)


def test_transforms_are_applied_on_the_way(tmp_path: Path) -> None:
    model = info(write_checkpoint(tmp_path))
    source = Join("concat", 1, (Step("transpose", (1, 0), LEAF), Step("mul", (2.0,), LEAF)))
    weight = Weight("w", "f16", (32, 64), source=Step("cast", ("f16",), source))
    found, q = values(weight, model), tensors()["l0.q"]
    np.testing.assert_array_equal(found, np.concatenate([q.T, 2 * q], 1).astype(np.float16))


@pytest.mark.parametrize(
    ("leaf", "dtype", "shape", "message"),
    [
        (LEAF, "f32", (32, 31), r"expected f32\[32, 31\], found f32\[32, 32\]"),
        (LEAF, "f16", (32, 32), r"expected f16\[32, 32\], found f32\[32, 32\]"),
        (Leaf("a.safetensors", "l7.q"), "f32", (32, 32), "no tensor 'l7.q'"),
        (Leaf("c.safetensors", "l0.q"), "f32", (32, 32), "no such file"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, leaf: Leaf, dtype: str, shape: tuple[int, ...], message: str
) -> None:
    model = info(write_checkpoint(tmp_path))
    with pytest.raises(ModelError, match=message) as caught:
        values(Weight("w", dtype, shape, source=leaf), model)
    assert leaf.file in (caught.value.where or "")
    assert caught.value.hint


def test_a_transform_that_does_not_fit_is_no_bug(tmp_path: Path) -> None:
    model = info(write_checkpoint(tmp_path))
    weight = Weight("w", "f32", (3, 3), source=Step("reshape", (3, 3), LEAF))
    with pytest.raises(ModelError, match=r"found \[\[32, 32\]\]"):
        values(weight, model)


def test_random_weights_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from partc.frontend import checkpoint

    made = np.ones((2, 2), np.float32)
    monkeypatch.setattr(checkpoint, "open_reader", lambda _: lambda leaf: made, raising=False)
    assert open_tensors(info(tmp_path))(Leaf("<random>", "w")) is made


def damaged(folder: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        [],
        {"l0.q": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"l0.q": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        {"l0.q": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}},
        {"l0.q": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}},
        {"l0.q": {"shape": [2]}},
        {"l0.q": 7},
    ],
    ids=str,
)
def test_damaged_safetensors_are_refused(tmp_path: Path, header: Any) -> None:
    with pytest.raises(ModelError):
        open_tensors(info(damaged(tmp_path, header, bytes(8))))(LEAF)


def test_a_header_that_is_longer_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelError, match="header is longer"):
        open_tensors(info(tmp_path))(LEAF)


@given(
    st.lists(st.tuples(st.sampled_from(["f32", "f16", "i64", "u8"]), st.lists(st.integers(0, 9), max_size=3)))
)
def test_written_files_have_no_holes_and_aligned_data(shapes: list[tuple[str, list[int]]]) -> None:
    entries = [Entry(f"t{i}", dtype, tuple(shape)) for i, (dtype, shape) in enumerate(shapes)]
    header, placed = lay_out(entries)
    assert len(header) % 64 == 0
    at = len(header)
    for entry in placed:
        assert entry.offset == at
        at += entry.bytes
    assert sorted(e.name for e in placed) == sorted(e.name for e in entries)


def test_written_files_are_safetensors(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.numpy").load_file
    arrays: dict[str, npt.NDArray[Any]] = {
        "odd": np.arange(3, dtype=np.int8),
        "even": np.arange(32, dtype=np.float32).reshape(4, 8),
    }
    entries = [Entry("odd", "i8", (3,)), Entry("even", "f32", (4, 8))]

    def arrays_of(names: Sequence[str]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        yield "even", arrays["even"][:1]
        yield "odd", arrays["odd"]
        yield "even", arrays["even"][1:]

    placed = write_safetensors(tmp_path / "w.safetensors", entries, arrays_of, lambda *_: None)
    loaded = load_file(tmp_path / "w.safetensors")
    assert {name: array.tolist() for name, array in loaded.items()} == {
        k: v.tolist() for k, v in arrays.items()
    }
    assert [entry.name for entry in placed] == ["even", "odd"]


def onnx_model(folder: Path, location: str, size: int = 16) -> Path:
    """A model with one inline and one external initializer."""
    inline = numpy_helper.from_array(np.arange(4, dtype=np.float32), "inline")
    external = onnx.TensorProto(
        name="external", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        external.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Add", ["inline", "external"], ["sum"]),
        helper.make_node("Add", ["sum", "x"], ["y"]),
    ]
    given, output = (helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [given], [output], initializer=[inline, external])
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def test_initializers_inline_and_external(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    onnx_model(tmp_path, "data.bin")
    read = open_tensors(info(tmp_path))
    for key in ("inline", "external"):
        np.testing.assert_array_equal(read(Leaf("net.onnx", key)), np.arange(4, dtype=np.float32))
    with pytest.raises(ModelError, match="no such initializer"):
        read(Leaf("net.onnx", "other"))


@pytest.mark.parametrize(
    "location", ["../data.bin", "/etc/passwd", "link.bin", "hard.bin", "", "a\0b", "none.bin"]
)
def test_external_data_at_unsafe_places_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "data.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "data.bin")
    os.link(tmp_path / "data.bin", folder / "hard.bin")
    onnx_model(folder, location)
    with pytest.raises(ModelError):
        open_tensors(info(folder))(Leaf("net.onnx", "external"))


@pytest.mark.parametrize("size", [8, 64])
def test_external_data_of_the_wrong_size_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(size))
    onnx_model(tmp_path, "data.bin", size)
    with pytest.raises(ModelError):
        open_tensors(info(tmp_path))(Leaf("net.onnx", "external"))
