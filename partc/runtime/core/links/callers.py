"""Who is at the other end of each connection to a device, by its greeting."""

from __future__ import annotations

from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.messages import CLIENT, Hello, Pong
from partc.format.role import Role
from partc.runtime.core.actions import Action, Lost
from partc.runtime.core.events import Origin, Received

KEYS_HINT = "partc keys BUILD makes new keys; copy each device's keys folder to it again"
_BUILD_HINT = "copy the folders of one build to all devices"


@dataclass(slots=True)
class Callers:
    """The connections to this device."""

    _names: dict[Origin, str] = field(default_factory=dict)
    """Route of a connection → who is at its other end."""
    _greetings: dict[Origin, tuple[Received, Hello]] = field(default_factory=dict)
    """Route of a connection that stands → the last greeting of a device on it, superseded ones included."""
    _last: dict[str, tuple[Origin, int]] = field(default_factory=dict)
    """Device → its last connection, and its session."""

    @property
    def devices(self) -> dict[str, Origin]:
        """The devices that are connected → where messages to them go."""
        return {name: route for route, name in self._names.items() if name != CLIENT}

    def name_of(self, origin: Origin) -> str | None:
        """Who is at the other end of a connection; None: nobody who has greeted."""
        return origin if isinstance(origin, str) else self._names.get(origin)

    def last(self, device: str) -> tuple[Origin, int] | None:
        """The last connection of a device, and its session, if it ever greeted."""
        return self._last.get(device)

    def came(self, event: Received, hello: Hello) -> list[Action]:
        """Note a greeting that fits."""
        lost = [] if hello.name == CLIENT else self._superseded(event, hello)
        self._names[event.origin] = hello.name
        self._last[hello.name] = event.origin, hello.session
        return lost

    def gone(self, origin: Origin) -> str | None:
        """A connection is closed; who was at its other end."""
        self._greetings.pop(origin, None)
        return self._names.pop(origin, None)

    def greeted_before(self, device: str) -> list[tuple[Received, Hello]]:
        """The greetings of a device on connections whose end is not noticed."""
        return [each for each in self._greetings.values() if each[1].name == device]

    def greeting(self, event: Received) -> tuple[Received, Hello] | None:
        """The greeting that a message is, or an earlier one that it brings back: a sign of life that was asked for."""
        match event.message:
            case Hello() as hello if isinstance(event.origin, bytes):
                return event, hello
            case Pong(token=token) if event.origin not in self._names:
                former = self._greetings.get(event.origin)
                if former is None or former[1].name in self._names.values():
                    return None
                return former if former[1].incarnation == token else None
        return None

    def _superseded(self, event: Received, hello: Hello) -> list[Action]:
        """Forget the former connection of a device that greets on another one: its end may be noticed much later.

        The former greeting is kept until its connection ends: after a standstill of this process, the greetings of two
        lives are read in any order, and somebody else with the device's key may greet in its name.
        """
        self._greetings[event.origin] = event, hello
        former = [
            route for route, name in self._names.items() if name == hello.name and route != event.origin
        ]
        for route in former:
            del self._names[route]
        return [Lost(hello.name, route) for route in former]


def check_greeting(role: Role, hello: Hello, user: str | None) -> None:
    """Hold a greeting against key, build and placement.

    Raises:
        RunError: it does not fit.
    """
    name = hello.name
    known = role.placement.addresses.keys() - {role.device}
    if name not in known and not (name == CLIENT and role.is_source):
        raise RunError(f"{name!r:.60} does not connect to {role.device} in this build", cause="refused")
    if user is not None and user != name:
        message = f"the key of {user!r} does not belong to {name!r}"
        raise RunError(message, hint=KEYS_HINT, cause="refused")
    if hello.plan.hex() != role.plan_id:
        builds = role.plan_id[:12], hello.plan.hex()[:12]
        message = f"{role.device} runs build {builds[0]}, {name} has build {builds[1]}"
        raise RunError(message, hint=_BUILD_HINT, cause="refused")
    if hello.epoch == role.epoch == 0 and hello.placement.hex() != role.placement_id:
        message = f"{name} has another placement of this build than {role.device}"
        raise RunError(message, hint=_BUILD_HINT, cause="refused")
