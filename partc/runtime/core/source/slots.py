"""Slots: which are free, and the tokens whose rows the last request of each has left, for prompts that begin alike.

A slot keeps its rows until another request takes it, so nothing is copied and no memory is added: what is kept is what
`max_requests` has room for. Only the source compares tokens; the opening of a request tells the devices how many rows
of which request they keep. llama.cpp's server finds a slot in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from partc.format.message_parts import Reuse

LEAST_REUSED = 16
"""Fewer rows are not worth another shape of the prompt's step."""


class Slots:
    """The slots of a ring."""

    def __init__(self, count: int) -> None:
        """All are free, and none has rows."""
        self._free = list(range(count))[::-1]
        self._kept: dict[int, tuple[int, Sequence[int]]] = {}
        """Slot → its last request, and the tokens whose rows that has left; the oldest first."""

    @property
    def free(self) -> int:
        """How many no request has."""
        return len(self._free)

    @property
    def any_free(self) -> bool:
        """Whether a request can have one."""
        return bool(self._free)

    def give(self, slot: int, request: int, tokens: Sequence[int]) -> None:
        """A request leaves its slot, and the rows of these tokens; few are as good as none."""
        self._free.append(slot)
        if len(tokens) >= LEAST_REUSED:
            self._kept[slot] = request, tokens

    def forget(self) -> None:
        """Rows may be gone: another placement is in force."""
        self._kept.clear()

    def take(self, prompt: Sequence[int]) -> tuple[int, Reuse | None]:
        """A free slot, and what the request keeps of its rows; O(slots × tokens).

        That which most of the prompt's rows lie in, where they are half of what it has; else one that has none, the
        last one that was left; else the oldest. At least one token is left to compute. No prompt: nothing is kept.
        """
        shared = {slot: _shared(prompt[:-1], tokens) for slot, (_, tokens) in self._kept.items()}
        fitting = [
            slot
            for slot, (_, tokens) in self._kept.items()
            if shared[slot] >= LEAST_REUSED and 2 * shared[slot] >= len(tokens)
        ]
        empty = [slot for slot in self._free if slot not in shared]
        slot = max(fitting, key=shared.__getitem__) if fitting else empty[-1] if empty else next(iter(shared))
        self._free.remove(slot)
        request, _ = self._kept.pop(slot, (0, ()))
        rows = shared.get(slot, 0)
        return slot, Reuse(request, rows) if rows >= LEAST_REUSED else None


def _shared(prompt: Sequence[int], tokens: Sequence[int]) -> int:
    """The number of tokens with which both begin."""
    most = min(len(prompt), len(tokens))
    return next((at for at in range(most) if prompt[at] != tokens[at]), most)
