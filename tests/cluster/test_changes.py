"""A cluster that becomes what fleet.yaml says, by a Ray in this process whose nodes have room for one keeper each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from partc.cluster.posts import DoorRing, Post, RingPosts
from partc.config.fleet import DoorPlace

MODULE = "partc.cluster.actors"


@dataclass
class _Actor:
    """An actor: what its methods return."""

    answers: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=self.answers[name])


@dataclass
class _Cluster:
    """What `partc.cluster.actors` uses of Ray, and a door."""

    actors: dict[str, _Actor] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    """Resource or address → the keeper that has it."""
    rings: dict[str, DoorRing] = field(default_factory=dict)
    """Those behind the door."""
    fewest: int = 99
    """Rings behind the door at the worst time."""

    def modules(self) -> dict[str, ModuleType]:
        """The modules to import."""
        ray, exceptions, util = (ModuleType(name) for name in ("ray", "ray.exceptions", "ray.util"))
        vars(ray).update(
            get=lambda value, timeout: value, get_actor=self.get, kill=self.kill, remote=self.remote
        )
        vars(ray).update(cluster_resources=lambda: {f"device_{name}": 1 for name in "abcd"})
        vars(exceptions).update(
            {n: type(n, (Exception,), {}) for n in ("GetTimeoutError", "RayActorError", "RayError")}
        )
        vars(util).update(list_named_actors=lambda all_namespaces: list(self.actors))
        return {"ray": ray, "ray.exceptions": exceptions, "ray.util": util}

    def get(self, name: str) -> _Actor:
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def kill(self, actor: _Actor) -> None:
        (name,) = [name for name, each in self.actors.items() if each is actor]
        del self.actors[name]
        self.taken = {key: keeper for key, keeper in self.taken.items() if keeper != name}

    def remote(self, kind: type) -> Any:
        make = self.door if kind.__name__ == "Door" else self.keeper
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=make))

    def keeper(self, post: Post) -> _Actor:
        for key in (post.resource, post.listen):
            assert key not in self.taken, f"{key} is still that of {self.taken[key]}"
            self.taken[key] = post.name
        made = self.actors[post.name] = _Actor({"post": lambda: post})
        return made

    def door(self, place: DoorPlace, rings: list[DoorRing], state: str) -> _Actor:
        self.rings = {ring.name: ring for ring in rings}
        methods = {
            "place": lambda: place,
            "rings": lambda: dict(self.rings),
            "open": lambda ring: self.rings.update({ring.name: ring}),
            "remove": self.remove,
            "state": lambda: {
                "url": "", "error": "", "rings": [{"name": name, "state": "ready"} for name in self.rings],
            },
        }  # fmt: skip
        made = self.actors["door"] = _Actor(methods)
        return made

    def remove(self, name: str, grace_s: float) -> None:
        del self.rings[name]
        self.fewest = min(self.fewest, len(self.rings))


def ring(name: str, devices: str, plan_id: str = "1") -> RingPosts:
    peers = {device: f"192.0.2.7:{ord(device)}" for device in devices}
    posts = [
        Post(name, device, f"device_{device}", f"/build/{device}", address, peers, plan_id, False)
        for device, address in peers.items()
    ]
    return RingPosts(DoorRing(name, "/build", peers[devices[0]], plan_id, False), tuple(posts))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Cluster]:
    found = _Cluster()
    for name, module in found.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules.pop(MODULE, None)
    yield found
    sys.modules.pop(MODULE, None)  # others import the real one


def up(*rings: RingPosts) -> list[str]:
    """What was done."""
    module: Any = importlib.import_module(MODULE)
    said: list[str] = []
    fleet = module.Fleet.__new__(module.Fleet)
    fleet._state = ""
    module.posts_of = lambda wanted: {posts.door.name: posts for posts in rings}
    fleet.up(SimpleNamespace(door=DoorPlace()), 5.0, said.append)
    return said


def keepers(cluster: _Cluster) -> set[str]:
    return {name.removeprefix("keeper/") for name in cluster.actors} - {"door"}


def test_what_is_as_the_file_says_is_left_alone(cluster: _Cluster) -> None:
    up(ring("x", "ab"), ring("y", "cd"))
    assert keepers(cluster) == {"x/a", "x/b", "y/c", "y/d"}
    before = dict(cluster.actors)
    assert up(ring("x", "ab"), ring("y", "cd")) == ["ring x: ready", "ring y: ready"]
    assert cluster.actors == before


def test_rings_of_another_build_are_replaced_one_after_another(cluster: _Cluster) -> None:
    up(ring("x", "ab"), ring("y", "cd"))
    said = up(ring("x", "ab", "2"), ring("y", "cd", "2"))
    assert said.index("ring x: ready") < said.index("ring y: no new requests")
    assert cluster.fewest == 1
    assert {each.plan_id for each in cluster.rings.values()} == {"2"}


def test_a_ring_may_have_the_devices_of_one_that_is_gone(cluster: _Cluster) -> None:
    """A new name, or devices that another ring has now: they are free before they are taken."""
    up(ring("x", "ab"), ring("y", "cd"))
    up(ring("z", "ab"), ring("y", "cd"))
    assert keepers(cluster) == {"z/a", "z/b", "y/c", "y/d"}
    assert cluster.rings.keys() == {"z", "y"}
    assert cluster.fewest == 1


def test_a_device_that_has_no_keeper_any_more(cluster: _Cluster) -> None:
    """`keeper: false`: something else starts its runner now, at the same address."""
    whole = ring("x", "ab")
    up(whole)
    up(replace(whole, keepers=whole.keepers[:1]))
    assert keepers(cluster) == {"x/a"}
