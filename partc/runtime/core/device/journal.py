"""Journal of a device: what happens to the ring, as events of its log (`partc/format/logs.py`).

The device shows it every action that its parts tell each other; what is worth a line comes out as a `Log`, in front of
what follows from the action. Nothing is decided here.

| action | events |
| --- | --- |
| greeted | `joined`; `back` where it was away |
| lost | `disconnected`, `link-down`; nothing about clients |
| linked | `link-up` |
| `refuse` is sent | `refused` |
| misfit | `misfit` |
| stalled, broken, replaced | `stalled`, `broken`, `lost`; `broken` once for the same devices |
| mended | `healed` |
| adopt | `moved` where a client asked for it, else `healed` |
| `commit`, `abort` | `epoch`, `dropped` |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from partc.format.logs import ranges_text
from partc.format.messages import CLIENT, Abort, Refuse
from partc.format.role import Role
from partc.runtime.core.actions import (
    Action,
    Adopt,
    Broken,
    Greeted,
    Hold,
    Linked,
    Lost,
    Mended,
    Misfit,
    Replaced,
    Stalled,
    Wish,
)
from partc.runtime.core.commands import Log, Send
from partc.runtime.core.events import Origin

_CHANGED = "the placement is changed"
_BACK = "all devices are back"

NOTED = frozenset(
    (Adopt, Broken, Greeted, Hold, Linked, Lost, Mended, Misfit, Replaced, Send, Stalled)
)  # fmt: skip
"""Actions that `Journal.of` looks at."""


@dataclass(slots=True)
class Journal:
    """The past of a device, as far as later events need it."""

    _away: dict[str, float] = field(default_factory=dict)
    """Device that was connected → when its connection ended."""
    _linked: set[str] = field(default_factory=set)
    """Devices to which a link stands."""
    _broken: tuple[str, ...] = ()
    """Devices without which no placement does, and which a line has named."""
    _lost: tuple[str, ...] = ()
    """Devices that were lost since the last placement came into force."""
    _still_since: float | None = None
    """When requests were last told to stand still; None: they go on."""

    def of(self, action: Action, now: float) -> Iterator[Log]:
        """The events of an action."""
        match action:
            case Send(message=Refuse(problem=problem)):
                yield Log("refused", {"cause": problem.cause, "reason": problem.message})
            case Greeted(hello):
                yield self._greeted(hello.name, now)
            case Lost(peer, origin):
                yield from self._closed(peer, origin, now)
            case Linked(peer):
                self._linked.add(peer)
                yield Log("link-up", {"peer": peer})
            case Misfit(error):
                cause = getattr(error, "cause", "input")
                yield Log("misfit", {"cause": cause, "reason": error.message})
            case Stalled(silent, error):
                yield Log("stalled", {"devices": ", ".join(silent), "reason": error.message})
            case Hold():
                self._stands_still(now)
            case Broken(devices):
                yield from self._no_way(devices, now)
            case Replaced(devices) if devices:
                self._lost = tuple(dict.fromkeys([*self._lost, *devices]))
                yield Log("lost", {"devices": ", ".join(devices)})
            case Mended():
                since = self._still_since
                yield self._healed(_BACK, 0.0 if since is None else now - since)
            case Adopt(wish=wish, stopped_s=stopped_s):
                reason = f"lost {', '.join(self._lost)}" if self._lost else _CHANGED
                healed = self._healed(reason, stopped_s)
                yield healed if wish is None else _moved(wish, stopped_s, now)
            case _:
                return

    @staticmethod
    def in_force(role: Role) -> Log:
        """A placement is in force, at any device."""
        stages = role.placement.stages.get("decode") or role.placement.stages["prefill"]
        own = [stage.submodules for stage in stages if role.device in stage.devices]
        return Log("epoch", {"epoch": role.epoch, "computes": ranges_text(own)})

    @staticmethod
    def dropped(abort: Abort) -> Log:
        """A placement that was prepared will not be in force."""
        problem = abort.problem
        return Log("dropped", {"epoch": abort.epoch, "cause": problem.cause, "reason": problem.message})

    def _greeted(self, device: str, now: float) -> Log:
        since = self._away.pop(device, None)
        if since is None:
            return Log("joined", {"peer": device})
        return Log("back", {"peer": device, "seconds": now - since})

    def _closed(self, peer: str, origin: Origin, now: float) -> Iterator[Log]:
        if isinstance(origin, str):
            if peer in self._linked:  # else it was tried, and never stood
                self._linked.discard(peer)
                yield Log("link-down", {"peer": peer})
        elif peer != CLIENT:
            self._away[peer] = now
            yield Log("disconnected", {"peer": peer})

    def _no_way(self, devices: tuple[str, ...], now: float) -> Iterator[Log]:
        self._stands_still(now)
        if devices != self._broken:
            self._broken = devices
            yield Log("broken", {"devices": ", ".join(devices)})

    def _stands_still(self, now: float) -> None:
        self._still_since = now if self._still_since is None else self._still_since

    def _healed(self, reason: str, seconds: float) -> Log:
        self._broken, self._lost, self._still_since = (), (), None
        return Log("healed", {"reason": reason, "seconds": seconds})


def _moved(wish: Wish, stopped_s: float, now: float) -> Log:
    reason = wish.reason or "a client asked for it"
    return Log("moved", {"reason": reason, "seconds": now - wish.asked, "stopped_s": stopped_s})
