"""Files that are something else than their name says are named as what they are by every reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from partc.errors import ModelError
from partc.format.first_bytes import check_foreign_json
from partc.format.json_text import read_json
from partc.format.safetensors import Header

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n"


def _onnx(path: Path) -> object:
    from partc.frontend.onnx_file import read_onnx

    return read_onnx(path)


READERS: dict[str, Callable[[Path], object]] = {
    "json": lambda path: read_json(path, ModelError, None),
    "safetensors": lambda path: Header(path, ModelError, None),
    "foreign json": lambda path: check_foreign_json(path, ModelError),
    "onnx": _onnx,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LFS, "pointer of git-lfs(.|\n)*git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"\n<html lang=en>", "web page"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b"PK\3\4rest", "zip"),
        (b"\x1f\x8brest", "gzip"),
        (b"GGUF\3\0\0\0", "GGUF"),
    ],
)
def test_it_is_named(reader: str, content: bytes, message: str, tmp_path: Path) -> None:
    if reader == "onnx":
        pytest.importorskip("onnx")
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_read_where_we_read_and_named_where_a_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path, ModelError, None) == {"a": 1}
    with pytest.raises(ModelError, match=r"byte order mark(.|\n)*sed -i"):
        check_foreign_json(path, ModelError)
    path.write_bytes(b'{"a": 1}')
    check_foreign_json(path, ModelError)
