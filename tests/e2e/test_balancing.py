"""Moves in a ring of real processes: by hand, and by the balancer when a device becomes slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from partc.cli.balance import balanced
from partc.cli.main import run
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.request import Request
from tests.runtime.fake_system import FakeSystem
from tests.runtime.patched import patched_runners
from tests.serve.server import Server, serving

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(3, whole=True)]

ROOT = Path(__file__).parents[2]
DEVICES = """\
source: phone
survive: one
devices:
  phone: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB}
  board: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB, limits: {battery: 30 %}}
  old: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB}
links:
  default: {bandwidth: 1 Gbit/s, latency: 0.1 ms}
place: {phone: layers 0-3, board: layers 4-7, old: layers 8-11}
"""
PACE = """\
from pathlib import Path
from partc.runtime.engines.ort import OrtEngine

inner = OrtEngine.run

def run(self, submodule, *rest):
    began = time.perf_counter()
    outputs = inner(self, submodule, *rest)
    first, last = self._role.submodules[submodule].covers
    factor = float(Path(os.environ["PACE"], self._role.device).read_text())
    wanted = 0.0002 * (last - first + 1) * factor
    time.sleep(max(0.0, wanted - (time.perf_counter() - began)))
    return outputs

OrtEngine.run = run
"""
"""Every sub-module takes 0.2 ms, times the number in the device's file: so fast is the ring on busy machines, too."""
TOKENS = 120
PROMPTS = ["Once upon a time", "The dog", "A girl"]
MOVED = "12-16"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("balancing")
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(ROOT / "examples/storyteller/model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


class Paced:
    """A local ring whose devices have the speed that a test says."""

    def __init__(self, build: Path, folder: Path) -> None:
        self._folder = folder
        for device in ("phone", "board", "old"):
            self.slow(device, 1.0)
        self.system = FakeSystem(folder / "system")
        self.system.battery(80)
        env = patched_runners(folder, PACE) | {"PACE": str(folder), "PARTC_SYS": str(self.system.root)}
        self.ring: LocalRing = launch_local(build, env=env)

    def slow(self, device: str, factor: float) -> None:
        """Let a device take so many times as long from now on."""
        fresh = self._folder / f"{device}.new"
        fresh.write_text(str(factor))
        fresh.replace(self._folder / device)


@pytest.fixture
def paced(build: Path, tmp_path: Path) -> Iterator[Paced]:
    made = Paced(build, tmp_path)
    with made.ring:
        yield made


def ask(client: Client, count: int = 1) -> list[Request]:
    return [client.submit(PROMPTS[k % 3], max_new_tokens=TOKENS) for k in range(count)]


def texts(requests: Sequence[Request]) -> list[str]:
    return [request.result().texts[0] for request in requests]


def moves_in(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("moved")]


def test_a_slow_device_gives_sub_modules_away_and_the_text_goes_on(
    build: Path, paced: Paced, capsys: pytest.CaptureFixture[str]
) -> None:
    """`board` becomes four times as slow in the middle of some requests."""
    with paced.ring.client() as client:
        expected = texts(ask(client, 3))
        paced.slow("board", 4.0)
        with balanced(client, build):
            requests = ask(client, 24)
            assert texts(requests) == expected * 8
    first, *_ = moves_in(capsys)
    assert "from board to" in first


@pytest.fixture
def server(build: Path, paced: Paced) -> Iterator[Server]:
    (build.parent / "template.jinja").write_text("{{ messages[0].content }}")
    with serving(build, "--connect", paced.ring.source) as made:
        yield made


def ask_server(server: Server, rounds: int) -> list[str]:
    """The texts that four clients get, each of which asks again when it has an answer."""

    def texts_of(client: int) -> list[str]:
        body = {"model": "storyteller", "prompt": PROMPTS[client % 3], "max_tokens": TOKENS, "temperature": 0}
        found = []
        for _ in range(rounds):
            status, told = server.post("/v1/completions", body)
            assert status == 200, told
            found.append(told["choices"][0]["text"])
        return found

    with ThreadPoolExecutor(4) as clients:
        return [text for found in clients.map(texts_of, range(4)) for text in found]


def changes_of(server: Server) -> list[str]:
    """The causes of the changes of placement, by the page's stream."""
    for line in server.lines("/ring", None):
        if line.startswith("data: ") and (ring := json.loads(line[6:])["rings"][0]["ring"]):
            return [change["cause"] for change in ring["changes"]]
    raise AssertionError("the stream has ended")


def test_a_ring_that_is_served_is_balanced(server: Server, paced: Paced) -> None:
    """`board` becomes slow, and then its battery runs low; four clients see nothing of it."""
    expected = ask_server(server, 1)
    assert changes_of(server) == []
    paced.slow("board", 4.0)
    assert ask_server(server, 8) == [text for text in expected for _ in range(8)]
    assert any("from board to" in cause for cause in changes_of(server))


def test_a_limit_is_acted_on_under_an_endpoint(server: Server, paced: Paced) -> None:
    expected = ask_server(server, 1)
    paced.system.battery(20)
    assert ask_server(server, 4) == [text for text in expected for _ in range(4)]
    assert "board: battery 20% (limit 30%)" in changes_of(server)[-1]


def test_a_ring_is_balanced_by_somebody_who_watches(build: Path, paced: Paced) -> None:
    """`partc watch --balance` beside a client that balances nothing."""
    command = [sys.executable, "-P", "-m", "partc.cli", "watch", str(build), "--balance", "--json"]
    command += ["--connect", paced.ring.source, "--every", "0.2s"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with paced.ring.client() as client, subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as watch:
        expected = texts(ask(client, 3))
        paced.system.battery(20)
        assert texts(ask(client, 12)) == expected * 4
        assert watch.stdout is not None
        states = (json.loads(line) for line in watch.stdout)
        changes = next(filter(None, (state["ring"]["changes"] for state in states)))
        watch.terminate()
    assert "board: battery 20% (limit 30%)" in changes[-1]["cause"]


def test_a_device_at_its_limit_gives_its_sub_modules_away(
    build: Path, paced: Paced, capsys: pytest.CaptureFixture[str]
) -> None:
    """The battery of `board` runs low in the middle of some requests."""
    with paced.ring.client() as client, balanced(client, build):
        expected = texts(ask(client, 3))
        assert moves_in(capsys) == []
        paced.system.battery(20)
        assert texts(ask(client, 12)) == expected * 4
    (moved,) = moves_in(capsys)
    assert "board: battery 20% (limit 30%)" in moved


def test_moves_by_hand_while_a_text_is_written(
    build: Path, paced: Paced, capsys: pytest.CaptureFixture[str]
) -> None:
    with paced.ring.client() as client:
        expected = texts(ask(client, 3))
        requests = ask(client, 6)
        address = paced.ring.source
        for device in ("old", "board"):
            client.wait(requests, 0.3)
            options = ["--connect", address, "--json"]
            assert run(["move", str(build), "--submodules", MOVED, "--to", device, *options]) == 0
            moved = json.loads(capsys.readouterr().out)["moved"]
            assert moved["stopped_s"] < 10
            assert run(["watch", str(build), "--connect", address, "--once", "--json"]) == 0
            last = json.loads(capsys.readouterr().out)["ring"]["changes"][-1]
            assert last["cause"].startswith("by hand: submodules 12-16 from ")
        assert texts(requests) == expected * 2
