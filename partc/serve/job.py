"""One sequence at a ring, as those see it who ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError
from partc.format.message_parts import Likely, Sampling
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result


@dataclass(slots=True, eq=False)
class Job:
    """One sequence to generate, or to encode. `on_token` and `on_end` are called in the event loop."""

    prompt: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    stop: Sequence[int]
    on_token: Callable[[int, Sequence[Likely]], None]
    """The token comes with its own probability and those of others where `sampling.likely` asks for them."""
    on_end: Callable[[Result | PartcError], None]
    reuses: bool = False
    """Whether rows of an earlier request that began alike may be used, and later ones may use those of this one."""
    tokens: list[int] = field(default_factory=list)
    """Those that have come; the ring's thread alone touches this and what follows."""
    request: Request | None = None
    lives: int = 0
    """Times that it was submitted."""
    is_cancelled: bool = False

    @property
    def finish(self) -> str:
        """The reason for its end, `stop` or `length`, once its last token has come; before that empty."""
        if self.tokens and self.tokens[-1] in self.stop:
            return "stop"
        return "length" if len(self.tokens) >= self.max_new_tokens > 0 else ""
