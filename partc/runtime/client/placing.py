"""A placement that a client asks the source for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partc.errors import PartcError, RunError
from partc.format.messages import Placed
from partc.runtime.client.line import Line

Answered = Callable[[Placed | PartcError], None]
"""Called with the end of a change of placement: it is in force, or why it is not."""


@dataclass(slots=True)
class Placing:
    """A change of placement under way."""

    line: Line
    ticket: bytes
    on_end: Answered | None = None
    outcome: Placed | PartcError | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.outcome is not None

    def end(self, outcome: Placed | PartcError) -> None:
        """Note the end, and tell whoever wants to know."""
        self.outcome = outcome
        if self.on_end is not None:
            self.on_end(outcome)

    def result(self, timeout_s: float | None = None) -> Placed:
        """Wait for the end.

        Raises:
            RunError: the source cannot go over to it, or the change has not ended within `timeout_s`; the placement in
                force stays.
        """
        self.line.wait([self], timeout_s)
        if isinstance(self.outcome, Placed):
            return self.outcome
        raise self.outcome or RunError(f"no change within {timeout_s} s", hint="try again", cause="stalled")
