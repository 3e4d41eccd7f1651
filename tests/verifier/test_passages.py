"""The text that quantisation is judged by: what is read, how it is cut, and what is wrong with it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import UserError
from partc.format.build import Model
from partc.runtime.client.text import Tokenizer
from partc.verifier.passages import Passage, find_text, own_passages, read_passages

BEGIN = 99
MODEL = Model(
    name="m",
    task="text-generation",
    dtype="float32",
    max_sequence=5,
    max_batch=1,
    max_requests=1,
    vocab_size=100,
    eos_token_ids=(),
    pad_token_id=None,
    bos_token_id=BEGIN,
    labels=None,
)


class _Letters(Tokenizer):
    """A token a character: its code less that of `a`; with or without a token at the beginning."""

    def __init__(self, begin: bool = False) -> None:
        super().__init__(Path())
        self._begin = [BEGIN] if begin else []

    def encode(self, texts: Any) -> list[list[int]]:
        return [[*self._begin, *(ord(letter) - ord("a") for letter in text)] for text in texts]


def _text(folder: Path, text: str) -> Path:
    file = folder / "text.txt"
    file.write_text(text)
    return file


def test_a_long_text_is_cut_into_passages(tmp_path: Path) -> None:
    found = read_passages(_text(tmp_path, "abcdefghijkl\n"), _Letters(), MODEL)
    assert [list(passage.ids) for passage in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert all(passage.first == 1 for passage in found)


def test_every_passage_begins_as_the_text_does(tmp_path: Path) -> None:
    found = read_passages(_text(tmp_path, "abcdefghi"), _Letters(begin=True), MODEL)
    assert [list(passage.ids) for passage in found] == [[99, 0, 1, 2, 3], [99, 4, 5, 6, 7], [99, 8]]


@pytest.mark.parametrize("most", range(1, 9))
def test_no_more_is_predicted_than_asked_for(most: int, tmp_path: Path) -> None:
    found = read_passages(_text(tmp_path, "abcdefghijkl"), _Letters(), MODEL, most)
    assert sum(len(passage.ids) - 1 for passage in found) == most


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there is no text in it"),
        (b" \n\n", "there is no text in it"),
        (b"a", "1 token, and at least 2 are needed"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"\x7fELF\0\0\0", "zero bytes"),
        (b"abc\xc3", "not UTF-8"),
        ("aé".encode(), "token 136, which is not below vocab_size, 100"),
    ],
)
def test_texts_that_do_not_do(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_passages(file, _Letters(), MODEL)
    assert caught.value.where == str(file)
    assert caught.value.hint


class _Reads(io.StringIO):
    """Counts what is read of a text, and refuses to be read whole."""

    characters = 0

    def read(self, size: int | None = -1, /) -> str:
        assert size is not None
        assert size > 0
        piece = super().read(size)
        _Reads.characters += len(piece)
        return piece


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("most", [1, 4, 5, 100, 1000])
def test_a_part_of_a_text_makes_the_passages_of_the_whole(
    most: int, begin: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " \n" * 5000 + "abcdefghijklmnopqrstuvwxyz" * 8000 + "\n"
    monkeypatch.setattr(Path, "open", lambda path, encoding: _Reads(text))
    monkeypatch.setattr(_Reads, "characters", 0)
    found = read_passages(tmp_path, _Letters(begin), MODEL, most)
    assert _Reads.characters < 10000 + 40 * most + 1000, "far more was read than is needed"
    ids = _Letters(begin).encode([text.strip()])[0]
    start = ids[:begin]
    room = MODEL.max_sequence - begin
    whole = [[*start, *ids[at : at + room]] for at in range(int(begin), len(ids), room)]
    assert sum(len(passage.ids) - 1 for passage in found) == most
    assert [list(passage.ids) for passage in found] == [
        right[: len(passage.ids)] for right, passage in zip(whole, found, strict=False)
    ]


class _Words(Tokenizer):
    """A token a word, by its length: half a word is another token."""

    def __init__(self) -> None:
        super().__init__(Path())

    def encode(self, texts: Any) -> list[list[int]]:
        return [[len(word.encode()) for word in text.split()] for text in texts]


@pytest.mark.parametrize("shift", range(5))
def test_characters_and_words_of_several_bytes_are_never_cut(shift: int, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("\ufeff" + "a" * shift + " €𝄞é" * 20_000, encoding="utf-8")
    for most in (7, 200, 3000):
        found = read_passages(file, _Words(), MODEL, most)
        ids = [token for passage in found for token in passage.ids]
        assert ids == ([shift] if shift else []) + [9] * (len(ids) - bool(shift))
        assert sum(len(passage.ids) - 1 for passage in found) == most


def test_bytes_behind_what_is_read_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"abcdefgh" * 100_000 + b"\xff")
    assert len(read_passages(file, _Letters(), MODEL, 20)) == 5
    with pytest.raises(UserError, match="not UTF-8"):
        read_passages(file, _Letters(), MODEL, 800_000)


def test_a_file_of_one_endless_word_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "open", lambda path, encoding: _Reads("a" * 10_000_000))
    monkeypatch.setattr(_Reads, "characters", 0)
    with pytest.raises(UserError, match="too short: 1 token"):
        read_passages(tmp_path, _Words(), replace(MODEL, vocab_size=None), 20)
    assert _Reads.characters < 100_000


def test_the_text_that_is_given_wins_over_the_models_own(tmp_path: Path) -> None:
    config = ModelConfig(CheckpointFolder(tmp_path))
    mine = _text(tmp_path, "abc")
    assert find_text(config, None) is None
    (tmp_path / "sample.txt").write_text("abc")
    assert find_text(config, None) == tmp_path / "sample.txt"
    assert find_text(config, mine) == mine
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for wrong, message in (
        (tmp_path / "nowhere.txt", "no such file"),
        (tmp_path, "is a folder"),
        (pipe, "no plain file"),
    ):
        with pytest.raises(UserError, match=message):
            find_text(config, wrong)


def test_what_the_original_writes_counts_from_behind_the_prompt() -> None:
    class Counts:
        def generate(self, prompt: list[int], count: int) -> list[int]:
            return [prompt[-1] + step for step in range(1, count + 1)]

    full: Any = Counts()
    found = own_passages(full, [[7], [1, 2, 3]], 2, lambda *told: None)
    assert found == [Passage([7, 8, 9], 1), Passage([1, 2, 3, 4, 5], 3)]
