"""The readers of JSON, of text and of plain files: what they refuse ends in the caller's error, with its place."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from partc.errors import BundleError, PartcError, UserError
from partc.format.json_text import MOST_LEVELS, parse_json, read_json
from partc.format.plain_files import read_plain_text, utf8

HINT = "make it again"


def _parse(text: str | bytes) -> object:
    return parse_json(text, "a.json", BundleError, HINT)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": [1, 2.5, null, true, "ä"]}', {"a": [1, 2.5, None, True, "ä"]}),
        (b"\xef\xbb\xbf[]", []),
        (str(2**64 - 1), 2**64 - 1),
        (str(1 - 2**64), 1 - 2**64),
        ("1e300", 1e300),
        ('"\\ud83d\\ude00"', "😀"),
        ("[" * MOST_LEVELS + "]" * MOST_LEVELS, None),
    ],
)
def test_strict_json_is_read(text: str | bytes, data: object) -> None:
    assert data is None or _parse(text) == data
    _parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[] []", "not valid JSON"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice"),
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "the number 1e999 is too large"),
        (str(2**64), "is too large"),
        ("9" * 10_000, "is too large"),
        ("-" + "9" * 10_000, "is too large"),
        ('"\\ud83d"', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        (b'"\xff"', "byte 1 is no UTF-8"),
        ("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_everything_else_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(BundleError, match=said) as caught:
        _parse(text)
    assert caught.value.hint == HINT
    assert str(caught.value.where).startswith("a.json")
    assert len(caught.value.message) < 150


def test_a_mistake_has_its_line_and_column() -> None:
    with pytest.raises(BundleError) as caught:
        _parse('{\n  "a": 1,\n}')
    assert caught.value.where == "a.json:3:1"


def test_nothing_else_is_raised_whatever_is_read() -> None:
    draw = random.Random(11)
    whole = b'{"a": [1, -2.5e3, "\\u00e4\\ud83d\\ude00"], "b": {"c": null, "d": [true, false]}}'
    for _ in range(5_000):
        text = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(text))
            text[place : place + draw.randint(0, 3)] = draw.choice(
                (b"", b"[", b'"', b"9" * 30, b"\xff", b"\\ud800", b"NaN", bytes([draw.randrange(256)]))
            )
        try:
            _parse(bytes(text))
        except BundleError as error:
            assert error.hint == HINT


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pipe, locked = tmp_path / "pipe", tmp_path / "locked"
    os.mkfifo(pipe)
    locked.write_text("{}")
    locked.chmod(0)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    cases = {
        tmp_path: "this is a folder, not a file",
        tmp_path / "none": "no such file",
        locked / "below": "no such file",
        pipe: "this is no plain file",
        large: "the file is too large: 1099511627776 bytes, 67108864 at most",
        tmp_path / ("x" * 300): "it cannot be read: File name too long",
        Path("a\0b"): "it cannot be read: embedded null byte",
    }
    if os.geteuid():
        cases[locked] = "it cannot be read: Permission denied"
    for path, said in cases.items():
        with pytest.raises(PartcError) as caught:
            read_json(path, BundleError, HINT)
        assert (caught.value.message, caught.value.where, caught.value.hint) == (said, str(path), HINT)


def test_another_word_for_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle"):
        read_json(tmp_path / "none", BundleError, HINT, missing="no bundle")


def test_arguments_are_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    assert utf8("größe") == "größe"
    with pytest.raises(UserError, match="not UTF-8: byte 3 is 0xff") as caught:
        utf8("abc\udcff")
    assert caught.value.where == r"abc\xff"
    assert "rename" in str(caught.value.hint)
    monkeypatch.setattr("os.fsencode", lambda text: text.encode("ascii", "surrogateescape"))
    assert utf8("gr\udcc3\udcb6\udcc3\udc9fe") == "größe"


def test_text_has_no_byte_order_mark_and_is_utf8(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfgr\xc3\xb6\xc3\x9fe")
    assert read_plain_text(file, BundleError, HINT) == "größe"
    file.write_bytes(b"ab\xff")
    with pytest.raises(BundleError, match="not UTF-8 text: byte 2 is 0xff"):
        read_plain_text(file, BundleError, HINT)
