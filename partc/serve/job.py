"""One sequence at a ring, as those see it who ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError
from partc.format.message_parts import Likely
from partc.runtime.client.query import Query
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result


@dataclass(slots=True, eq=False)
class Job:
    """One sequence to generate, or to encode. `on_token` and `on_end` are called in the event loop."""

    query: Query
    """The request, as it was before its first token; each of its lives begins with `query_now`."""
    on_token: Callable[[int, Sequence[Likely]], None]
    """The token comes with its own probability and those of others where `sampling.likely` asks for them."""
    on_end: Callable[[Result | PartcError], None]
    tokens: list[int] = field(default_factory=list)
    """Those that have come; the ring's thread alone touches this and what follows."""
    request: Request | None = None
    lives: int = 0
    """Times that it was submitted."""
    is_cancelled: bool = False

    @property
    def prompt(self) -> Sequence[int]:
        """Token ids of the prompt."""
        (prompt,) = self.query.prompts
        assert not isinstance(prompt, int | str), "the server has token ids, one list for each prompt"
        return prompt

    @property
    def query_now(self) -> Query:
        """The request, which goes on behind the tokens that have come."""
        return self.query.behind(self.tokens)

    @property
    def finish(self) -> str:
        """The reason for its end, `stop` or `length`, once its last token has come; before that empty."""
        if self.tokens and self.tokens[-1] in self.query.stop:
            return "stop"
        most = self.query.max_new_tokens
        return "length" if most and len(self.tokens) >= most else ""
