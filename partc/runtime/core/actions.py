"""Actions: all that one part of the core tells another, on its way through the device.

The parts return actions and commands; `Device` alone takes them to where they belong. So nothing here calls back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Held
from partc.format.messages import AnyMessage, Hello, Message
from partc.format.placement import Placement
from partc.format.role import Role
from partc.runtime.core.commands import Command, Frame
from partc.runtime.core.events import Origin
from partc.runtime.core.step import Step

# -- links tell


class Delivered(Struct, frozen=True):
    """Values from a device arrived, checked in every respect."""

    peer: str
    step: Step
    values: Mapping[str, Array]


class Heard(Struct, frozen=True):
    """Any other message from a participant whose name is known."""

    peer: str
    origin: Origin
    message: AnyMessage
    frames: Sequence[memoryview]


class Linked(Struct, frozen=True):
    """This device may send to a peer now."""

    peer: str
    first_request: int = 0
    """Requests below this number are over."""


class Greeted(Struct, frozen=True):
    """A device has connected to this one, and is welcome."""

    hello: Hello


class Lost(Struct, frozen=True):
    """A connection to or from this participant is closed."""

    peer: str
    origin: Origin


class Misfit(Struct, frozen=True):
    """This device and a peer do not fit together: another build, another placement, other keys."""

    error: PartcError


# -- requests tell


class Forward(Struct, frozen=True):
    """Values go to a device."""

    peer: str
    step: Step
    names: tuple[str, ...]
    arrays: Sequence[Array]


class Emitted(Struct, frozen=True):
    """A step is over, and these are its values for the client."""

    step: Step
    values: Mapping[str, Array]


class Seen(Struct, frozen=True):
    """A traced request received these values, or samples from them."""

    peer: str
    step: Step
    values: Mapping[str, Array]


class Failed(Struct, frozen=True):
    """A request cannot go on; or with `earlier`, neither can those before it; or None: no request in flight can.

    A message that must not be trusted names the request that it was for. It may be late, and its request long over, so
    requests that began later go on.
    """

    request: int | None
    error: PartcError
    earlier: bool = False

    def concerns(self, number: int) -> bool:
        """Whether this request cannot go on."""
        return self.request is None or number == self.request or (self.earlier and number < self.request)


# -- the schedule tells


class Begin(Struct, frozen=True):
    """A step begins at the source, once the request's last one is done there."""

    step: Step
    inputs: Mapping[str, Array]


class End(Struct, frozen=True):
    """A request is over on all devices."""

    request: int
    report: bool
    """Whether its timings are wanted."""


class Stalled(Struct, frozen=True):
    """A request makes no progress."""

    silent: tuple[str, ...]
    """Devices that do not answer, either."""
    error: RunError


class Broadcast(Struct, frozen=True):
    """A message goes to every device that is connected."""

    message: Message


# -- changes of placement tell


class Tell(Struct, frozen=True):
    """A message goes to a device; the source may be meant itself."""

    device: str
    message: Message
    frames: Sequence[Frame] = ()


class Hold(Struct, frozen=True):
    """Requests stop at their step boundaries."""

    at_once: bool
    """Nothing under way is waited for: it is lost."""


class Broken(Struct, frozen=True):
    """Devices were lost, and no placement does without them."""

    devices: tuple[str, ...]


class Mended(Struct, frozen=True):
    """The ring stands as it stood; nothing was lost."""


class Replaced(Struct, frozen=True):
    """Devices were lost, or have forgotten what they had; a placement follows that does not need it."""

    devices: tuple[str, ...]


class Wish(Struct, frozen=True):
    """A placement that a client asks for."""

    origin: Origin
    ticket: bytes
    placement: Placement
    reason: str
    """Reason for the move, as `place` gives it."""
    asked: float
    """The time of `place`."""


class Adopt(Struct, frozen=True):
    """A prepared placement is in force: the participants are to be told, and requests to go on."""

    role: Role
    """Role of the source."""
    participants: Mapping[str, int]
    """Device → incarnation."""
    have: Mapping[tuple[str, int, str], Held]
    """(device, request, sub-module) → what is there."""
    wish: Wish | None
    stopped_s: float
    """Time for which requests stood still, seconds."""


Inner = (
    Delivered | Heard | Linked | Lost | Misfit | Forward | Emitted | Seen | Failed | Begin | End | Stalled
    | Greeted | Broadcast | Tell | Hold | Broken | Mended | Replaced | Adopt
)  # fmt: skip
Action = Inner | Command

__all__ = [
    "Action", "Adopt", "Begin", "Broadcast", "Broken", "Delivered", "Emitted", "End", "Failed", "Forward", "Frame",
    "Greeted", "Heard", "Hold", "Inner", "Linked", "Lost", "Mended", "Misfit", "Replaced", "Seen", "Stalled", "Tell",
    "Wish",
]  # fmt: skip
