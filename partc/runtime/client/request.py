"""A request in flight, as its client sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.format.frames import join_tensors
from partc.format.messages import Cancel, Resume, Submit, Token
from partc.format.messages import Result as Ended
from partc.runtime.client.line import Line
from partc.runtime.client.results import Crossing, Result, Timings, Tokens
from partc.runtime.client.text import TextStream


@dataclass(slots=True)
class Request:
    """A request in flight."""

    line: Line
    ticket: bytes
    prompts: Sequence[Sequence[int]]
    """Token ids."""
    streams: Sequence[TextStream]
    """The text of each sequence, for prompts of text."""
    on_token: Callable[[Tokens], None] | None
    expected_s: float
    """Seconds that its longest step may take by the plan."""
    submit: Submit
    frames: Sequence[memoryview]
    """Those of `submit`."""
    steps: int = field(init=False)
    """Steps whose tokens are known: those of the query, and those that have come."""
    is_cancelled: bool = False
    texts: list[str] = field(init=False)
    """The text of each sequence so far, for prompts of text."""
    timings: dict[str, Timings] = field(default_factory=dict)
    trace: list[Crossing] = field(default_factory=list)
    outcome: Result | PartcError | None = None

    def __post_init__(self) -> None:
        self.steps = self._known
        told = self.submit.known or ((),) * len(self.streams)
        self.texts = ["".join(map(stream.push, told[row])) for row, stream in enumerate(self.streams)]

    @property
    def _known(self) -> int:
        """Steps whose tokens the query brings."""
        return max(map(len, self.submit.known), default=0)

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.outcome is not None

    def result(self, timeout_s: float | None = None) -> Result:
        """Wait for the end.

        Raises:
            RunError: the request failed, or has not ended within `timeout_s`.
        """
        self.line.wait([self], timeout_s)
        if isinstance(self.outcome, Result):
            return self.outcome
        if self.outcome is None:
            hint = "wait for it again, or cancel it"
            raise RunError(f"no result within {timeout_s} s", hint=hint, cause="stalled")
        raise self.outcome

    def cancel(self) -> None:
        """Ask for an end; `result` raises then."""
        self.is_cancelled = True
        self.line.tell(Cancel(ticket=self.ticket))

    def ask_again(self) -> None:
        """Go on after a gap. What was never heard of may not have reached the source: it is sent again."""
        if self.steps > self._known:
            self.line.tell(Resume(ticket=self.ticket, from_step=self.steps))
        else:
            self.line.tell(self.submit, self.frames)
        if self.is_cancelled:
            self.cancel()

    def take(self, message: Token) -> list[str]:
        """Take the tokens of the next step; the text that is certain now, per sequence."""
        self.steps += 1
        rows = zip(self.streams, message.tokens, message.finish, strict=False)
        pieces = [_piece(stream, token, bool(finish)) for stream, token, finish in rows]
        self.texts = [text + piece for text, piece in zip(self.texts, pieces, strict=True)]
        return pieces

    def finish(self, ended: Ended, frames: Sequence[memoryview]) -> Result:
        """The result of a request that ended well."""
        return Result(
            prompts=self.prompts,
            tokens=[list(tokens) for tokens in ended.tokens],
            texts=self.texts,
            finish=list(ended.finish),
            outputs=join_tensors(ended.values, frames),
            elapsed_s=ended.elapsed_s,
            timings=self.timings,
            trace=self.trace,
            reused=ended.reused,
            drafted=ended.drafted,
            accepted=ended.accepted,
        )


def _piece(stream: TextStream, token: int | None, is_last: bool) -> str:
    if token is None:
        return ""
    piece = stream.push(token)
    return piece + stream.finish() if is_last else piece
