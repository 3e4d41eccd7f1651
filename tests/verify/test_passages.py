"""The text that quantisation is judged by: what is read, how it is cut, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from partc.config.model import CheckpointFolder, ModelConfig
from partc.errors import UserError
from partc.runtime.manifest import Model
from partc.runtime.text import Tokenizer
from partc.verify.passages import Passage, find_text, own_passages, read_passages

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
        (b"", "0 tokens"),
        (b" \n\n", "0 tokens"),
        (b"a", "1 token, and at least 2 are needed"),
        (b"\xff\xfe\x00", "not UTF-8"),
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


def test_the_text_that_is_given_wins_over_the_models_own(tmp_path: Path) -> None:
    config = ModelConfig(CheckpointFolder(tmp_path))
    mine = _text(tmp_path, "abc")
    assert find_text(config, None) is None
    (tmp_path / "sample.txt").write_text("abc")
    assert find_text(config, None) == tmp_path / "sample.txt"
    assert find_text(config, mine) == mine
    for wrong, message in ((tmp_path / "nowhere.txt", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(UserError, match=message):
            find_text(config, wrong)


def test_what_the_original_writes_counts_from_behind_the_prompt() -> None:
    class Counts:
        def generate(self, prompt: list[int], count: int) -> list[int]:
            return [prompt[-1] + step for step in range(1, count + 1)]

    full: Any = Counts()
    found = own_passages(full, [[7], [1, 2, 3]], 2, lambda *told: None)
    assert found == [Passage([7, 8, 9], 1), Passage([1, 2, 3, 4, 5], 3)]
