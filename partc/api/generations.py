"""What a ring answers to a prompt: pieces while it comes, and the whole in the end."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from partc.errors import PartcError
from partc.format.message_parts import Likely
from partc.runtime.client.results import Result, Tokens
from partc.runtime.client.stop_search import StopSearch
from partc.runtime.client.text import TextStream


@dataclass(frozen=True)
class Piece:
    """What a step added to an answer."""

    text: str
    """The text that is certain now. Empty within a character, where a stop text may begin, and without a tokenizer."""
    token: int | None
    """The new token; None for text that was held back until the end."""
    likely: tuple[Likely, ...] = field(default=(), repr=False)
    """The token and the most likely ones, each with the natural logarithm of its probability, where that was asked."""


@dataclass(frozen=True)
class Generation:
    """The answer to one prompt."""

    text: str
    """The new text; empty where the build has no tokenizer."""
    tokens: list[int]
    """The new tokens, an end token included."""
    finish: Literal["stop", "length"]
    """Why it ended: an end token or a stop text, or no room for more."""
    prompt: list[int] = field(repr=False)
    """The tokens of the prompt as they were used."""
    likely: list[tuple[Likely, ...]] = field(repr=False)
    """For each token what `Piece.likely` is."""
    result: Result | None = field(repr=False)
    """What the ring told besides, the times on each device among it; None where a stop text cut the answer short."""


@dataclass(eq=False)
class Answer:
    """An answer on its way. Pieces come in on the thread of the client, and go out to one that iterates."""

    prompt: list[int]
    stream: TextStream | None
    """Turns tokens into text; None: nothing does."""
    search: StopSearch
    on_piece: Callable[[Piece | None], None]
    """Called on the client's thread with every piece, then with None."""
    cancel: Callable[[], None] = lambda: None
    """Asks for the end; the answer is an exception then."""
    whole: Future[Generation] = field(default_factory=Future)
    pieces: list[Piece] = field(default_factory=list)
    """Those that have come."""

    def take(self, tokens: Tokens) -> None:
        """Take a step's token."""
        token = tokens.tokens[0]
        if self.whole.done() or token is None:
            return
        text = "" if self.stream is None else self.search.push(self.stream.push(token))
        self._tell(Piece(text, token, tuple(tokens.likely[0]) if tokens.likely else ()))
        if self.search.is_found:
            self._end("stop", None)
            self.cancel()

    def settle(self, outcome: Future[Result]) -> None:
        """Take the end of the request."""
        if self.whole.done():
            return
        error = outcome.exception()
        if error is not None:
            self.whole.set_exception(error)
            self.on_piece(None)
            return
        if self.stream is not None:
            rest = self.search.push(self.stream.finish())
            rest += "" if self.search.is_found else self.search.finish()
            if rest:
                self._tell(Piece(rest, None))
        result = outcome.result()
        self._end("stop" if self.search.is_found or result.finish[0] == "stop" else "length", result)

    def _tell(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.on_piece(piece)

    def _end(self, finish: Literal["stop", "length"], result: Result | None) -> None:
        tokens = [piece for piece in self.pieces if piece.token is not None]
        generation = Generation(
            text="".join(piece.text for piece in self.pieces),
            tokens=[piece.token for piece in tokens if piece.token is not None],
            finish=finish,
            prompt=self.prompt,
            likely=[piece.likely for piece in tokens if piece.likely],
            result=result,
        )
        self.whole.set_result(generation)
        self.on_piece(None)


class Stream:
    """The pieces of an answer as they come; its whole is there when they have ended.

    ```
    with ring.stream("Once upon a time") as pieces:
        for piece in pieces:
            print(piece.text, end="", flush=True)
    ```
    Leaving the block before the end cancels the request.
    """

    def __init__(self, begin: Callable[[Callable[[Piece | None], None]], Answer]) -> None:
        """Begin the answer; `begin` takes what is called with every piece."""
        self._pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._answer = begin(self._pieces.put)

    def __iter__(self) -> Iterator[Piece]:
        """Every piece once.

        Raises:
            RunError: the request failed.
        """
        while (piece := self._pieces.get()) is not None:
            yield piece
        self._pieces.put(None)  # whoever iterates again finds the end
        self._answer.whole.result()

    @property
    def told(self) -> list[Piece]:
        """The pieces that have come so far, whether they were iterated or not."""
        return list(self._answer.pieces)

    def result(self, timeout_s: float | None = None) -> Generation:
        """Wait for the whole answer.

        Raises:
            RunError: the request failed.
            TimeoutError: it has not ended within `timeout_s` seconds; it goes on.
        """
        return self._answer.whole.result(timeout_s)

    def cancel(self) -> None:
        """Ask for the end; whoever waits for it gets an error."""
        self._answer.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._answer.whole.done():
            self.cancel()
            with contextlib.suppress(PartcError):  # it was cancelled, as was asked
                self._answer.whole.result()
