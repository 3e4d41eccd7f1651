"""Safetensors headers: read back as they were written, by the library of that name too, and refused where damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format.dtypes import BY_SHORT
from partc.format.layouts import ALIGNMENT
from partc.format.safetensors import Entry, Header, write_safetensors

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
TENSORS = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(BY_SHORT)), SHAPES),
    max_size=6,
).map(lambda found: [Entry(name, dtype, shape) for name, (dtype, shape) in found.items()])


def header(path: Path) -> Header:
    return Header(path, BundleError, "copy it again")


def write(path: Path, tensors: list[Entry]) -> list[Entry]:
    return write_safetensors(
        path,
        tensors,
        lambda names: [
            (e.name, np.zeros(e.shape, BY_SHORT[e.dtype].held)) for e in tensors if e.name in names
        ],
        lambda done, total: None,
    )


@given(TENSORS)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, tensors: list[Entry]) -> None:
    path = tmp_path_factory.mktemp("round") / "w.safetensors"
    placed = write(path, tensors)
    found = header(path)
    assert sorted(found.names()) == sorted(entry.name for entry in tensors)
    assert [found.entry(entry.name) for entry in placed] == placed
    aligned = [entry for entry in placed if entry.bytes % ALIGNMENT == 0]
    assert all(entry.offset % ALIGNMENT == 0 for entry in aligned)


def test_the_library_of_that_name_reads_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    path = tmp_path / "w.safetensors"
    write(path, [Entry("a", "f32", (2, 3)), Entry("b", "i8", (64,))])
    assert {name: array.shape for name, array in load_file(path).items()} == {"a": (2, 3), "b": (64,)}


def raw_file(path: Path, text: str | bytes, data: bytes = b"\0" * 64) -> Path:
    encoded = text.encode() if isinstance(text, str) else text
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def entry_text(**changes: object) -> str:
    return json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "its header is not a mapping"),
        ("{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ('{"w": Infinity}', "Infinity is not a number"),
        ('{"w": NaN}', "NaN is not a number"),
        ('{"w": 1e999}', "too large"),
        ('{"w": 1' + "0" * 400 + "}", "too large"),
        ('{"w": {}, "w": {}}', "stands twice"),
        ('{"w": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = raw_file(tmp_path / "w.safetensors", text)
    with pytest.raises(BundleError) as caught:
        header(path)
    assert message in caught.value.message
    assert str(path) in (caught.value.where or "")
    assert caught.value.hint == "copy it again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry_text(shape=[1.9]), "expected `int`, got `float`"),
        (entry_text(shape=["1"]), "expected `int`, got `str`"),
        (entry_text(shape=[True]), "expected `int`, got `bool`"),
        (entry_text(shape=[-1]), "expected `int` >= 0"),
        (entry_text(shape=None), "expected `array`, got `null`"),
        (entry_text(data_offsets=[0.5, "4"]), "expected `int`, got `float`"),
        (entry_text(data_offsets=[0]), "expected `array` of length 2"),
        (entry_text(data_offsets=[0, 5]), "its size is wrong"),
        (entry_text(data_offsets=[4, 0]), "its size is wrong"),
        (entry_text(data_offsets=[64, 68]), "lies outside the file"),
        (entry_text(shape=[2**40, 2**40]), "its size is wrong"),
        (entry_text(dtype=1), "expected `str`, got `int`"),
        (entry_text(dtype="F4"), "has the element type F4, which partc does not read"),
        ('{"w": 1}', "expected `object`, got `int`"),
        ('{"w": {"dtype": "F32", "shape": []}}', "missing required field `data_offsets`"),
    ],
)
def test_tensors_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = raw_file(tmp_path / "w.safetensors", text)
    with pytest.raises(BundleError) as caught:
        header(path).entry("w")
    assert message in caught.value.message.replace("Expected", "expected").replace("Object", "object")
    assert "'w'" in caught.value.message
    assert caught.value.where == str(path)


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 8, (100).to_bytes(8, "little") + b"{}"])
def test_files_that_are_too_short(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(BundleError):
        header(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        header(tmp_path)


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    found = header(raw_file(tmp_path / "w.safetensors", '{"__metadata__": {"format": "pt"}}'))
    assert found.names() == []
    for name in ("__metadata__", "w"):
        with pytest.raises(KeyError):
            found.entry(name)
