"""Devices that return with another address, as a phone does in another network; only the source stays where it is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Tokens
from tests.runtime.bundles import LENGTH, language_model
from tests.runtime.patched import slow_runner
from tests.runtime.runners import Runners

pytestmark = pytest.mark.in_turns(3)

ELSEWHERE = "127.0.0.2:0"
COUNT = LENGTH - 2


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


@contextmanager
def elsewhere(build: Path, ring: LocalRing, name: str, runners: Runners) -> Iterator[None]:
    """End a runner, and start it at another address; the others are not told."""
    os.kill(ring.pids[name], signal.SIGKILL)
    command = [*runners.command(name), "--bundle", str(build / "devices" / name)]
    command += ["--listen", ELSEWHERE, *(f"--peer={peer}={ring.addresses[peer]}" for peer in ring.addresses)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        told = process.stdout.readline()
        assert told.startswith(f"{name} listens on 127.0.0.2:"), told
        yield
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.mark.parametrize("name", ["b", "c"])
def test_a_device_that_returns_elsewhere_while_nothing_runs(build: Path, name: str, runners: Runners) -> None:
    """The source sends to b, and c to the source; b, which sends to c, learns from the source where it is."""
    with runners.launch(build, restart=False, rejoin_s=30.0) as ring, ring.client() as client:
        right = client.generate([1, 2], COUNT, ignore_eos=True).tokens
        with elsewhere(build, ring, name, runners):
            began = time.monotonic()
            assert client.generate([1, 2], COUNT, ignore_eos=True).tokens == right
            assert time.monotonic() - began < 25.0, "the ring would wait 30 s for it"


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("name", ["b", "c"])
def test_a_device_that_returns_elsewhere_in_a_request(
    build: Path, tmp_path: Path, name: str, runners: Runners
) -> None:
    env = slow_runner(tmp_path / "slow", 0.06, "a")
    runners = runners.patched("a")
    with runners.launch(build, restart=False, rejoin_s=30.0, env=env) as ring, ring.client() as client:
        right = client.generate([1, 2], COUNT, ignore_eos=True).tokens
        told: list[Tokens] = []
        request = client.submit([1, 2], max_new_tokens=COUNT, ignore_eos=True, on_token=told.append)
        while len(told) < 3:
            client.listen(1.0)
        with elsewhere(build, ring, name, runners):
            assert request.result().tokens == right
        assert [tokens.step for tokens in told] == list(range(COUNT))
