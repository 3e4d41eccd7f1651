from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import RunError
from partc.runtime.client.text import TextStream, Tokenizer, refuse_panic


class Bytes(Tokenizer):
    """A token per byte of UTF-8, and words that begin with a space only after others."""

    def __init__(self) -> None:
        super().__init__(Path())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


@given(st.text(), st.text(min_size=1))
def test_pieces_add_up_and_are_never_half_a_character(prompt: str, text: str) -> None:
    stream = TextStream(Bytes(), list(prompt.encode(errors="replace")))
    data = text.encode(errors="replace")
    pieces = [stream.push(token) for token in data]
    assert "".join(pieces) + stream.finish() == data.decode()
    assert all("\ufffd" not in piece for piece in pieces if "\ufffd" not in text)


def test_a_bundle_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no tokenizer"):
        Tokenizer(tmp_path).encode(["x"])


class PanicException(BaseException):
    """As tokenizers raises it where its Rust code panics."""


class _Panics:
    def encode_batch(self, texts: list[str], add_special_tokens: bool) -> None:
        raise PanicException("index out of bounds")

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> None:
        raise PanicException("index out of bounds")


def test_a_panic_of_the_tokenizer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(tmp_path)
    monkeypatch.setattr(tokenizer, "_loaded", _Panics())
    with pytest.raises(RunError, match="cannot read this text: index out of bounds"):
        tokenizer.encode(["x"])
    with pytest.raises(RunError, match="cannot write these tokens: index out of bounds"):
        tokenizer.decode([1])


def test_an_interrupt_is_none_of_the_tokenizers_errors() -> None:
    with pytest.raises(KeyboardInterrupt):
        refuse_panic(KeyboardInterrupt())
    refuse_panic(PanicException())
    refuse_panic(ValueError())


@pytest.mark.hf
def test_a_real_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Made
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = Made(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        ["the cat sat on the mat", "größer"], trainers.BpeTrainer(special_tokens=["<end>"])
    )
    made.enable_padding()
    (tmp_path / "tokenizer").mkdir()
    made.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    short, long = tokenizer.encode(["the cat", "the cat sat on the mat"])
    assert len(short) < len(long), "no padding"
    assert tokenizer.decode(long) == "the cat sat on the mat"
    stream = tokenizer.stream(short)
    pieces = "".join(stream.push(token) for token in long[len(short) :])
    assert pieces + stream.finish() == " sat on the mat"


def test_a_broken_tokenizer_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    with pytest.raises(RunError, match="cannot be loaded"):
        Tokenizer(tmp_path).encode(["a"])
