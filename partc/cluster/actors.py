"""The actors of a fleet on a Ray cluster: keepers by resource, the door on the head node.

`Fleet.up` makes the cluster what fleet.yaml says, whatever it was before. A ring whose build, folder or addresses are
others is replaced: the door lets its requests end and gives it no more, its keepers are replaced, and it stands again
before the next one's turn comes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util import list_named_actors

from partc.cluster.door import Door
from partc.cluster.keeper import DeviceKeeper
from partc.cluster.posts import DoorRing, Post, RingPosts, posts_of
from partc.config.fleet import FleetFile
from partc.errors import ConfigError, PartcError, RunError

NAMESPACE = "partc"
DOOR = "door"
_HEAD = {"node:__internal_head__": 0.001}
_FOR_EVER = {"num_cpus": 0, "lifetime": "detached", "max_restarts": -1, "max_task_retries": 0}
_KEEPER_S = 60.0
"""Time that an actor has to start."""
_ANSWER_S = 2.0
_READY_S = 300.0
"""Time that a ring has to load."""
_LOOK_S = 0.5

Tell = Callable[[str], None]


class Fleet:
    """The partc actors of a Ray cluster."""

    def __init__(self, address: str, state: Path) -> None:
        """Connect to the cluster.

        Args:
            address: HOST:PORT of its head, or `auto`.
            state: folder on the head node for what a door keeps.

        Raises:
            RunError: there is no cluster.
        """
        self._state = state
        ours = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            first, _, _ = str(error).partition("\n")
            hint = "ray start --head, or give --address HOST:PORT; partc fleet demo BUILD tries one out"
            raise RunError(f"no Ray cluster: {first}", where=address, hint=hint) from None
        signal.signal(signal.SIGTERM, ours)  # Ray's would end this process without its cleaning up

    def close(self) -> None:
        """Leave the cluster; the fleet goes on."""
        ray.shutdown()

    def up(self, fleet: FleetFile, grace_s: float, tell: Tell) -> str:
        """Make the cluster what the file says; the door's URL.

        Args:
            fleet: what is wanted.
            grace_s: time that requests have to end at a ring that is replaced; then they begin again at another.
            tell: called with each thing that is done.

        Raises:
            BundleError, ConfigError: the file and the cluster do not fit together.
            RunError: a ring did not come to stand, or the door did not open.
        """
        wanted = posts_of(fleet)
        _check_resources(wanted)
        door = _actor(DOOR)
        if door is not None and (error := _asked(door.state)["error"]):
            tell(f"the door had ended: {error}")
            _kill(DOOR)
            door = None
        if door is None:
            for ring in wanted.values():
                self._replace(ring, tell)
            door = self._open_door(fleet, wanted)
        else:
            self._change(door, fleet, wanted, grace_s, tell)
        for name in wanted:
            _await_ring(door, name, tell)
        return str(_asked(door.state)["url"])

    def state(self) -> dict[str, Any]:
        """`{door, keepers: [{ring, device, away, pid, deaths, last}], nodes: [{address, alive, resources}]}`.

        `door` is `Door.state`, or null where there is none.
        """
        keepers = [_keeper_state(name) for name in _names() if name != DOOR]
        door = _actor(DOOR)
        told = None
        if door is not None:
            try:
                told = _asked(door.state)
            except RunError as error:
                told = {"url": "", "error": error.message, "in_flight": 0, "rings": []}
        return {"door": told, "keepers": keepers, "nodes": [_node(node) for node in ray.nodes()]}

    def down(self, tell: Tell) -> None:
        """End the door and all rings."""
        for name in _names():
            if name == DOOR and (door := _actor(DOOR)) is not None:
                try:
                    _asked(door.end)
                except RunError as error:
                    tell(f"the door: {error.message}")
            _kill(name)
            tell(f"ended {name}")

    def _open_door(self, fleet: FleetFile, wanted: Mapping[str, RingPosts]) -> Any:
        rings = [posts.door for posts in wanted.values()]
        made = ray.remote(Door).options(name=DOOR, resources=_HEAD, max_concurrency=8, **_FOR_EVER)
        door = made.remote(fleet.door, rings, str(self._state))
        _asked(door.place, _KEEPER_S)
        return door

    def _change(
        self, door: Any, fleet: FleetFile, wanted: Mapping[str, RingPosts], grace_s: float, tell: Tell
    ) -> None:
        if (place := _asked(door.place)) != fleet.door:
            hint = "partc fleet down, then partc fleet up; or leave `door` as it was"
            raise ConfigError(f"the door runs with other settings: {place}", where="door", hint=hint)
        known: Mapping[str, DoorRing] = _asked(door.rings)
        for name in (
            known.keys() - wanted.keys()
        ):  # first, since others may have their devices and addresses now
            tell(f"ring {name}: ends")
            _asked(lambda name=name: door.remove.remote(name, grace_s), grace_s + _KEEPER_S)
            self._replace(RingPosts(known[name], ()), tell)
        for name, posts in wanted.items():
            if name in known and known[name] == posts.door and _kept(posts):
                continue
            if name in known:
                tell(f"ring {name}: no new requests")
                _asked(lambda name=name: door.remove.remote(name, grace_s), grace_s + _KEEPER_S)
            self._replace(posts, tell)
            _asked(lambda ring=posts.door: door.open.remote(ring))
            _await_ring(door, name, tell)

    def _replace(self, posts: RingPosts, tell: Tell) -> None:
        """Keepers as they are wanted, in place of those that the ring has."""
        for name in _keepers_of(posts.door.name):
            _kill(name)
        started = [(post, _keep(post)) for post in posts.keepers]
        for post, keeper in started:
            _asked(keeper.post, _KEEPER_S)
            tell(f"ring {post.ring}: keeper of {post.device} on {post.resource}")


def _keep(post: Post) -> Any:
    made = ray.remote(DeviceKeeper).options(name=post.name, resources={post.resource: 1}, **_FOR_EVER)
    return made.remote(post)


def _check_resources(wanted: Mapping[str, RingPosts]) -> None:
    """Every keeper has a node that takes it."""
    there = ray.cluster_resources()
    posts = [post for ring in wanted.values() for post in ring.keepers]
    for post in posts:
        asked = sum(other.resource == post.resource for other in posts)
        if there.get(post.resource, 0) < asked:
            hint = (
                f"on its node: ray start --address HEAD --resources '{{\"{post.resource}\": {asked}}}'; "
                f"a device that runs no Ray: `keeper: false`"
            )
            message = f"no node of the cluster has the resource {post.resource!r} {asked} times"
            raise ConfigError(message, where=f"ring {post.ring}: {post.device}", hint=hint)


def _kept(posts: RingPosts) -> bool:
    """Whether a ring has the keepers that are wanted, and no other; one that is away counts: Ray brings it back."""
    if set(_keepers_of(posts.door.name)) != {post.name for post in posts.keepers}:
        return False
    for post in posts.keepers:
        keeper = _actor(post.name)
        if keeper is None:
            return False
        try:
            if _asked(keeper.post) != post:
                return False
        except RunError:
            continue
    return True


def _await_ring(door: Any, name: str, tell: Tell) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        told = _asked(door.state)
        if told["error"]:
            raise RunError(
                f"the door has ended: {told['error']}", hint="mend that, then partc fleet up again"
            )
        state = next((ring["state"] for ring in told["rings"] if ring["name"] == name), "ended")
        if state == "ready":
            tell(f"ring {name}: ready")
            return
        time.sleep(_LOOK_S)
    hint = "partc fleet status says which devices are away; the logs of the keepers say why"
    raise RunError(f"the ring does not stand after {_READY_S:g} s", where=name, hint=hint)


def _keeper_state(name: str) -> dict[str, Any]:
    _, ring, device = name.split("/", 2)
    keeper = _actor(name)
    try:
        told = {} if keeper is None else _asked(keeper.state)
    except RunError as error:
        return {"ring": ring, "device": device, "away": True, "pid": None, "deaths": 0, "last": error.message}
    return {"ring": ring, "device": device, "away": keeper is None, **told}


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    own = [name for name in node["Resources"] if not name.startswith("node:")]
    devices = sorted(name for name in own if name not in ("CPU", "GPU", "memory", "object_store_memory"))
    return {"address": node["NodeManagerAddress"], "alive": node["Alive"], "resources": devices}


def _names() -> list[str]:
    return [
        name for name in list_named_actors(all_namespaces=False) if name == DOOR or name.startswith("keeper/")
    ]


def _keepers_of(ring: str) -> list[str]:
    return [name for name in _names() if name.startswith(f"keeper/{ring}/")]


def _actor(name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def _kill(name: str) -> None:
    """End an actor, and wait until its name is free."""
    actor = _actor(name)
    if actor is not None:
        ray.kill(actor)
    end = time.monotonic() + _KEEPER_S
    while name in list_named_actors(all_namespaces=False) and time.monotonic() < end:
        time.sleep(0.05)


def _asked(ask: Any, patience_s: float = 10.0) -> Any:
    """The answer of an actor's method, or of a call of one; its own errors are raised as they are.

    Raises:
        RunError: it does not answer.
    """
    try:
        return ray.get(ask.remote() if hasattr(ask, "remote") else ask(), timeout=patience_s)
    except (GetTimeoutError, RayActorError) as error:
        first, _, _ = str(error).partition("\n")
        cause = error.__cause__ if isinstance(error.__cause__, PartcError) else None
        raise RunError(f"an actor does not answer: {cause or first}", cause="lost-peer") from None
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, PartcError):
            raise cause from None
        raise
