"""Keepers and the door as they are, without Ray: rings that are replaced while the door answers."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.cluster.demo import write_demo
from partc.cluster.door import Door
from partc.cluster.keeper import DeviceKeeper
from partc.cluster.posts import RingPosts, posts_of
from partc.config.fleet import DoorPlace, load_fleet
from partc.errors import RunError
from tests.serve.server import make_build

pytestmark = pytest.mark.serve


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RingPosts]:
    folder = tmp_path_factory.mktemp("fleet")
    build = make_build(folder)
    return posts_of(load_fleet(write_demo(folder, [build, build], 0)))


@pytest.fixture(scope="module")
def keepers(rings: dict[str, RingPosts]) -> Iterator[dict[str, DeviceKeeper]]:
    made = {post.name: DeviceKeeper(post) for posts in rings.values() for post in posts.keepers}
    yield made
    for keeper in made.values():
        keeper.close()


def test_rings_come_and_go_behind_the_door(
    rings: dict[str, RingPosts], keepers: dict[str, DeviceKeeper], tmp_path: Path
) -> None:
    first, second = (posts.door for posts in rings.values())
    door = Door(DoorPlace(port=0), [first], str(tmp_path))
    _await(door, "ring1")
    alone = _answer(door)
    door.open(second)
    _await(door, "ring2")
    door.remove("ring1", 5.0)
    assert [ring["name"] for ring in door.state()["rings"]] == ["ring2"]
    assert _answer(door) == alone
    with pytest.raises(RunError, match="there is no ring 'ring1'"):
        door.remove("ring1", 5.0)
    again = Door(DoorPlace(port=0), [first], str(tmp_path))  # as after a crash: it has what the last one had
    assert list(again.rings()) == ["ring2"]
    again.end()
    door.end()
    assert not list(tmp_path.glob("door*"))


def test_a_keeper_starts_its_runner_again(keepers: dict[str, DeviceKeeper]) -> None:
    keeper = keepers["keeper/ring2/b"]
    before = keeper.state()
    os.kill(before["pid"], signal.SIGKILL)
    end = time.monotonic() + 10
    while (after := keeper.state())["pid"] == before["pid"] and time.monotonic() < end:
        time.sleep(0.02)
    assert after["deaths"] == before["deaths"] + 1
    assert "signal 9" in after["last"]


def test_a_node_without_the_folder_says_so(keepers: dict[str, DeviceKeeper], tmp_path: Path) -> None:
    from dataclasses import replace

    post = replace(keepers["keeper/ring1/a"].post(), folder=str(tmp_path))
    with pytest.raises(RunError, match=r"there is no build\.json"):
        DeviceKeeper(post)


def _await(door: Door, name: str) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if any(ring["name"] == name and ring["state"] == "ready" for ring in door.state()["rings"]):
            return
        time.sleep(0.1)
    raise AssertionError(door.state())


def _answer(door: Door) -> Any:
    body = json.dumps({"model": "tiny", "prompt": "abc", "seed": 5, "max_tokens": 20}).encode()
    url = f"{door.state()['url']}/v1/completions"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["text"]
