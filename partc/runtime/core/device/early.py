"""Questions for rows that come before the change that they are for is known here.

PREPARE goes to all devices at once, each over a connection of its own, so the question of one device may overtake
another's PREPARE. It is kept until that comes, and then held against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from partc.format.messages import Want
from partc.runtime.core.actions import Heard


@dataclass(slots=True)
class Early:
    """The early questions: of each device those of one change, one for each request and sub-module."""

    _of: dict[str, tuple[int, dict[tuple[int, str], Heard]]] = field(default_factory=dict)
    """Device → the epoch, and (request, sub-module) → the question."""

    def keep(self, heard: Heard, want: Want) -> None:
        """Keep a question about something that is here."""
        epoch, questions = self._of.get(heard.peer, (0, {}))
        if epoch != want.epoch:
            questions = {}
        questions[want.request, want.submodule] = heard
        self._of[heard.peer] = want.epoch, questions

    def taken(self) -> list[Heard]:
        """All of them, which are not kept any more."""
        kept, self._of = self._of, {}
        return [heard for _, questions in kept.values() for heard in questions.values()]
