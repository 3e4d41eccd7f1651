"""Text to tokens and back, for clients: the one place that needs the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from partc.errors import RunError
from partc.extras import install_command

TOKENIZER_FILE = "tokenizer/tokenizer.json"
_CONTEXT_TOKENS = 6


def refuse_panic(error: BaseException) -> None:
    """Raise `error` again unless tokenizers raised it.

    Where its Rust code panics, that is a PanicException, which is no Exception and would end the process.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


class Tokenizer:
    """The tokenizer of a bundle, loaded when it is first used."""

    def __init__(self, folder: Path | None) -> None:
        """Take the folder of the source device; without one there is no tokenizer."""
        self._path = None if folder is None else folder / TOKENIZER_FILE
        self._loaded: Any = None

    @property
    def is_there(self) -> bool:
        """Whether the bundle has one."""
        return self._path is not None and self._path.exists()

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """The tokens of each text, with the special ones that the model wants.

        Raises:
            RunError: the bundle has no tokenizer, or the package is not installed.
        """
        return self._encode(texts, special=True)

    def encode_whole(self, texts: Iterable[str]) -> list[list[int]]:
        """The tokens of texts that hold their special tokens already, as templates write them; raises as `encode`."""
        return self._encode(texts, special=False)

    def _encode(self, texts: Iterable[str], *, special: bool) -> list[list[int]]:
        tokenizer, given = self._tokenizer(), list(texts)
        try:
            return [
                list(encoding.ids) for encoding in tokenizer.encode_batch(given, add_special_tokens=special)
            ]
        except BaseException as error:
            refuse_panic(error)
            message = f"the tokenizer cannot read this text: {error}"
            raise RunError(message, where=str(self._path), hint="send token ids instead") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones; raises as `encode`."""
        tokenizer = self._tokenizer()
        try:
            return str(tokenizer.decode(list(tokens), skip_special_tokens=True))
        except BaseException as error:
            refuse_panic(error)
            message = f"the tokenizer cannot write these tokens: {error}"
            raise RunError(message, where=str(self._path), hint="ask for token ids instead") from error

    def token(self, text: str) -> int | None:
        """The token that is exactly this text; None: there is none. Raises as `encode`."""
        found = self._tokenizer().token_to_id(text)
        return None if found is None else int(found)

    def name(self, token: int) -> str:
        """The token as the vocabulary has it, special ones too; raises as `encode`."""
        return str(self._tokenizer().id_to_token(token) or "")

    def stream(self, prompt: Sequence[int]) -> TextStream:
        """A decoder that turns the tokens after `prompt` into text, one by one."""
        return TextStream(self, prompt)

    def load(self) -> None:
        """Load it now, and not when it is first used; raises as `encode`."""
        self._tokenizer()

    def _tokenizer(self) -> Any:
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    def _read(self) -> Any:
        if self._path is None or not self.is_there:
            raise RunError("this build has no tokenizer, so it takes no text", hint="send token ids instead")
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            hint = f"{install_command('tokenizer')}, where the client runs"
            raise RunError("text needs the package tokenizers, which is not installed", hint=hint) from None
        try:
            loaded = Loaded.from_file(str(self._path))
        except BaseException as error:
            refuse_panic(error)
            raise RunError(
                f"the tokenizer cannot be loaded: {error}",
                where=str(self._path),
                hint="mend tokenizer.json of the model and compile again, or send token ids",
            ) from error
        loaded.no_padding()
        loaded.no_truncation()
        return loaded


class TextStream:
    """Text of a growing list of tokens: each piece once, and never half a character.

    A token's text may depend on the tokens before it (a leading space, a character in several tokens), so the
    difference of two decodings with some context is taken, and held back while it ends in an incomplete
    character.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt[-_CONTEXT_TOKENS:])
        self._context = 0
        self._told = len(self._tokens)
        self.is_partial = False
        """Whether the last token ended within a character."""

    def push(self, token: int) -> str:
        """Take a token; the text that is certain now."""
        self._tokens.append(token)
        piece = self._piece()
        self.is_partial = piece.endswith("\ufffd")
        if not piece or self.is_partial:
            return ""
        self._context, self._told = self._told, len(self._tokens)
        return piece

    def text_of(self, token: int) -> str:
        """The text that a token would add here, or its own name where that is none; nothing is changed."""
        given = self._tokens[self._context :]
        known, text = self._tokenizer.decode(given), self._tokenizer.decode([*given, token])
        return text[len(known) :] or self._tokenizer.name(token)

    def finish(self) -> str:
        """The text that was held back."""
        return self._piece() if self._told < len(self._tokens) else ""

    def _piece(self) -> str:
        known = self._tokenizer.decode(self._tokens[self._context : self._told])
        return self._tokenizer.decode(self._tokens[self._context :])[len(known) :]
