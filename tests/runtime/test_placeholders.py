"""Prompts with a picture or a sound among their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from partc.errors import RunError
from partc.format.build import Model
from partc.runtime.client.placeholders import with_placeholders
from partc.runtime.client.text import Tokenizer

BEGIN, PICTURE = 1, 9
MODEL = cast("Model", SimpleNamespace(bos_token_id=BEGIN, placeholder_token=PICTURE, placeholders=3))


class Letters:
    """A tokenizer of letters, whose texts begin with a token of their own; `*` is the placeholder."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[BEGIN, *(PICTURE if letter == "*" else ord(letter) for letter in text)] for text in texts]


LETTERS = cast("Tokenizer", Letters())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([5, 6], [9, 9, 9, 5, 6]),
        ([BEGIN, 5, 6], [BEGIN, 9, 9, 9, 5, 6]),
        ([5, PICTURE, 6], [5, 9, 9, 9, 6]),
        ([BEGIN, 5, PICTURE], [BEGIN, 5, 9, 9, 9]),
        ([5, 9, 9, 9, 6], [5, 9, 9, 9, 6]),
        ([5, 9, 9, 6], [5, 9, 9, 6]),
        ("a", [BEGIN, 9, 9, 9, 97]),
        ("a*b", [BEGIN, 97, 9, 9, 9, 98]),
    ],
    ids=[
        "before the text", "behind the token that begins it", "where one stands", "at the end", "all are there",
        "too few, which is left to the check", "a text", "a text with one",
    ],
)  # fmt: skip
def test_places(prompt: str | Sequence[int], expected: list[int]) -> None:
    assert with_placeholders(prompt, MODEL, LETTERS) == expected


def test_a_text_needs_a_tokenizer() -> None:
    with pytest.raises(RunError):
        with_placeholders("a", MODEL, Tokenizer(None))
    assert with_placeholders([5], MODEL, Tokenizer(None)) == [9, 9, 9, 5]
