"""Moves of sub-modules between the devices of a ring, which a client of the endpoint asks for: tried, or made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from partc.errors import PartcError
from partc.format.messages import Placed
from partc.format.placement import Placement
from partc.format.status import RingStatus
from partc.serve.bodies import MoveBody
from partc.serve.errors import ApiError
from partc.serve.live import Live
from partc.serve.replies import Json
from partc.serve.rings import Rings

_STATUS_S = 5.0
"""Time that a ring has to say where its sub-modules are."""


@dataclass(frozen=True)
class Move:
    """What a move changes, as people read it, and the placement that it leads to."""

    text: str
    """The plan's time before and after."""
    rows: Sequence[Sequence[str]]
    """Device, sub-modules before, after, memory needed, memory there."""
    placement: Placement
    reason: str


Mover = Callable[[RingStatus, str, str], Move]
"""The move of some sub-modules (as in `MoveBody`) of a ring as it is to a device; raises PartcError."""


@dataclass(frozen=True)
class Moves:
    """Who moves sub-modules for clients. Used in the event loop alone."""

    rings: Rings
    live: Live
    movers: Mapping[str, Mover]
    """Ring → the one that knows its build."""

    async def answer(self, body: MoveBody) -> Json:
        """`{text, rows, moved}`; `moved` is null unless the move was made.

        Raises:
            ApiError: there is no such ring or device, or it cannot compute them.
        """
        mover = self.movers.get(body.ring)
        if mover is None:
            message = (
                f"there is no ring {body.ring!r}: {', '.join(self.movers) or 'none can be changed here'}"
            )
            raise ApiError(message, status=404, param="ring")
        status = await self._status(body.ring)
        try:
            move = await asyncio.to_thread(mover, status, body.submodules, body.to)
        except PartcError as error:
            raise _refused(error) from None
        moved = await self._made(body.ring, move) if body.apply else None
        return {"text": move.text, "rows": [list(row) for row in move.rows], "moved": moved}

    async def _status(self, name: str) -> RingStatus:
        try:
            async with asyncio.timeout(_STATUS_S), aclosing(self.live.looks()) as looks:
                async for _ in looks:
                    if (status := self.live.statuses.get(name)) is not None:
                        return status
        except TimeoutError:
            pass
        message = "the ring does not say how it is"
        raise ApiError(message, status=503, kind="server_error", code="ring_unavailable")

    async def _made(self, name: str, move: Move) -> Json:
        ended: asyncio.Future[Placed | PartcError] = asyncio.get_running_loop().create_future()

        def on_end(outcome: Placed | PartcError) -> None:
            if not ended.done():  # the client may have gone away
                ended.set_result(outcome)

        self.rings.place(name, move.placement, move.reason, on_end)
        outcome = await ended
        if isinstance(outcome, PartcError):
            raise _refused(outcome)
        return {"seconds": outcome.seconds, "stopped_s": outcome.stopped_s, "steps": outcome.steps}


def _refused(error: PartcError) -> ApiError:
    hint = f"; {error.hint}" if error.hint else ""
    return ApiError(f"{error.message}{hint}", status=409, code="move_refused")
