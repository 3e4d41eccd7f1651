"""Moves in a ring of real processes: by hand, and by the balancer when a device becomes slow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from partc.cli.balance import balanced
from partc.cli.main import run
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.request import Request
from tests.runtime.fake_system import FakeSystem
from tests.runtime.patched import patched_runners

pytestmark = [pytest.mark.hf, pytest.mark.ort]

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
    prompts = ["Once upon a time", "The dog", "A girl"]
    return [client.submit(prompts[k % 3], max_new_tokens=TOKENS) for k in range(count)]


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
