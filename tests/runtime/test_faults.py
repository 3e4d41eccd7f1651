"""What goes wrong, and that it ends soon, with a clear error, and with nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.errors import BundleError, InternalError, PartcError, RunError
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, LocalSettings, launch_local
from partc.runtime.core.liveness import COMPUTING_FACTOR
from partc.runtime.shell.keys import make_keys
from tests.runtime.bundles import HIDDEN, LENGTH, language_model, reseal
from tests.runtime.null_tokens import null_tokens
from tests.runtime.patched import patched_engines, patched_runners
from tests.runtime.runners import MIXED, NATIVE, PYTHON, Runners

pytestmark = pytest.mark.in_turns(3)

FLOOR_S = 1.0
"""Instead of the 5 seconds of daily use."""
SLACK_S = 15.0
"""What a busy test machine may add; a message says by what something was noticed."""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = set(children())
    yield
    assert set(children()) <= before


def children() -> list[int]:
    """The processes that this one has started, zombies too."""
    task = Path(f"/proc/{os.getpid()}/task")
    return [int(pid) for path in task.glob("*/children") for pid in path.read_text().split()]


def long_request(client: Client) -> PartcError:
    """Keep asking until something fails; the failure."""
    for _ in range(10_000):
        request = client.submit([1, 2], max_new_tokens=LENGTH - 2, ignore_eos=True)
        client.wait([request])
        if isinstance(request.outcome, PartcError):
            return request.outcome
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("runners", [PYTHON, NATIVE, *MIXED], indirect=True)
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_killed_device(build: Path, victim: str, runners: Runners) -> None:
    with runners.launch(build, restart=False) as ring, ring.client() as client:
        client.generate([1], 2)
        # A request is under way at the victim for sure: one that came after the break would wait for the ring.
        os.kill(ring.pids[victim], signal.SIGSTOP)
        request = client.submit([1, 2], max_new_tokens=LENGTH - 2, ignore_eos=True)
        if victim != "a":
            with pytest.raises(RunError, match="was cancelled"):
                other = client.submit([1], max_new_tokens=1)
                other.cancel()
                other.result()
        began = time.monotonic()
        os.kill(ring.pids[victim], signal.SIGKILL)
        client.wait([request])
        error = request.outcome
        assert isinstance(error, RunError)
        assert time.monotonic() - began < SLACK_S
        assert f"{victim} closed its connection" in error.message
        assert error.hint


@pytest.mark.parametrize("runners", [PYTHON, NATIVE, *MIXED], indirect=True)
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_stopped_device(build: Path, victim: str, runners: Runners) -> None:
    with runners.launch(build, floor_s=FLOOR_S, rejoin_s=0.0) as ring, ring.client() as client:
        client.generate([1], 2)
        os.kill(ring.pids[victim], signal.SIGSTOP)
        began = time.monotonic()
        error = long_request(client)
        assert time.monotonic() - began < FLOOR_S + SLACK_S
        os.kill(ring.pids[victim], signal.SIGCONT)
        assert error.where == victim
        assert error.hint


@pytest.mark.in_turns(6)
def test_a_device_that_hangs_but_answers_sockets(build: Path, tmp_path: Path, runners: Runners) -> None:
    """It computes for ever and answers all the same: for longer than the longest step is thought to take."""
    env = patched_engines(tmp_path / "hang", "time.sleep(60)", "b")
    launch = runners.patched("b").launch
    with launch(build, floor_s=FLOOR_S / 2, rejoin_s=0.0, env=env) as ring, ring.client() as client:
        began = time.monotonic()
        with pytest.raises(RunError, match=r"no progress for 6\.0 s in step 0: .*b computes") as caught:
            client.generate([1], 2)
        assert (caught.value.where, caught.value.cause) == ("b", "stalled")
        assert time.monotonic() - began < COMPUTING_FACTOR * FLOOR_S / 2 + SLACK_S


def test_a_bug_in_a_runner_is_told_with_its_traceback(build: Path, tmp_path: Path, runners: Runners) -> None:
    env = patched_engines(tmp_path / "broken", "1 / 0", "c")
    with runners.patched("c").launch(build, env=env) as ring, ring.client() as client:
        with pytest.raises(InternalError, match="the runner of c failed") as caught:
            client.generate([1], 2)
        assert "ZeroDivisionError" in caught.value.message


def test_a_flipped_byte(build: Path, runners: Runners) -> None:
    path = build / "devices" / "b" / "part_1.txt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"part_1\.txt: the runner of b ended: the file is damaged") as caught:
        runners.launch(build)
    assert "compile again" in str(caught.value.hint)


def test_a_device_of_another_build(build: Path, tmp_path: Path, runners: Runners) -> None:
    other = language_model("null", plan_id="ab" * 32).write(tmp_path / "other")
    shutil.rmtree(build / "devices" / "b")
    shutil.copytree(other / "devices" / "b", build / "devices" / "b")
    make_keys(build, ["a", "b", "c"], "a")
    with pytest.raises(RunError, match=f"build {'ab' * 6}") as caught:
        runners.launch(build)
    assert "copy the folders of one build" in str(caught.value.hint)


def test_keys_of_another_build(build: Path, tmp_path: Path, runners: Runners) -> None:
    make_keys(tmp_path / "other", ["a", "b", "c"], "a")
    shutil.rmtree(build / "devices" / "b" / "keys")
    shutil.copytree(tmp_path / "other" / "devices" / "b" / "keys", build / "devices" / "b" / "keys")
    with pytest.raises(RunError, match="do not have each other's keys") as caught:
        runners.launch(build)
    assert "partc keys" in str(caught.value.hint)


def test_a_missing_key(build: Path, runners: Runners) -> None:
    (build / "devices" / "c" / "keys" / "secret.key").unlink()
    with pytest.raises(RunError, match="the keys are missing") as caught:
        runners.launch(build)
    assert "partc keys" in str(caught.value.hint)


def test_an_unknown_client(build: Path, tmp_path: Path, runners: Runners) -> None:
    stranger = tmp_path / "stranger"
    shutil.copytree(build, stranger)
    make_keys(tmp_path / "other", ["a", "b", "c"], "a")
    shutil.copy(tmp_path / "other" / "keys" / "client.secret", stranger / "keys" / "client.secret")
    with runners.launch(build) as ring, ring.client() as client:
        began = time.monotonic()
        with pytest.raises(RunError, match="does not take this client's key"):
            Client.connect(stranger, ring.addresses["a"])
        assert time.monotonic() - began < SLACK_S
        assert client.generate([1], 3, ignore_eos=True).tokens == [null_tokens((1,), 3)]


def test_a_client_of_another_build(build: Path, tmp_path: Path, runners: Runners) -> None:
    other = language_model("null", plan_id="cd" * 32).write(tmp_path / "other")
    shutil.rmtree(other / "keys")
    shutil.copytree(build / "keys", other / "keys")
    with runners.launch(build) as ring, pytest.raises(RunError, match=f"client has build {'cd' * 6}"):
        Client.connect(other, ring.addresses["a"])


def test_a_client_in_the_clear(build: Path, runners: Runners) -> None:
    with (
        runners.launch(build) as ring,
        pytest.raises(RunError, match="takes no client without a key") as caught,
    ):
        Client.connect(build, ring.addresses["a"], insecure=True, floor_s=FLOOR_S)
    assert caught.value.hint == "leave --insecure out"


def test_a_client_at_a_device_that_is_not_the_source(build: Path, runners: Runners) -> None:
    with runners.launch(build) as ring, pytest.raises(RunError, match="does not take this client's key"):
        Client.connect(build, ring.addresses["b"])


def test_nobody_there(build: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RunError, match="a does not answer") as caught:
        Client.connect(build, f"127.0.0.1:{port}", floor_s=0.3)
    assert caught.value.where == f"127.0.0.1:{port}"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:99999", ":5555", "::1:5555"])
def test_what_is_no_address(build: Path, address: str) -> None:
    with pytest.raises(RunError, match=f"a: '{address}' is not an address") as caught:
        Client.connect(build, address)
    assert "HOST:PORT is expected" in str(caught.value.hint)


def test_a_port_in_use(build: Path, runners: Runners) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            RunError, match=f"{address}: the runner of b ended: cannot listen: Address"
        ) as caught:
            runners.launch(build, listen={"b": address})
    assert "--listen" in str(caught.value.hint)


def test_not_a_build(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a build"):
        launch_local(tmp_path)


def test_a_device_is_missing(build: Path, runners: Runners) -> None:
    """Requests wait for the ring, but not for ever."""
    with runners.launch(build, floor_s=FLOOR_S, restart=False) as ring, ring.client() as client:
        os.kill(ring.pids["c"], signal.SIGKILL)
        long_request(client)
        began = time.monotonic()
        with pytest.raises(RunError, match="c has not joined the ring"):
            client.generate([1], 2)
        assert time.monotonic() - began < FLOOR_S + SLACK_S


@pytest.mark.in_turns(8)
def test_a_device_comes_back(build: Path, runners: Runners) -> None:
    """A runner that starts again is taken in again, at the same address."""
    with runners.launch(build, floor_s=15.0, restart=False) as ring, ring.client() as client:
        os.kill(ring.pids["c"], signal.SIGKILL)
        long_request(client)
        command = [*runners.command("c"), "--bundle", str(build / "devices" / "c")]
        command += ["--listen", ring.addresses["c"], "--peer", f"a={ring.addresses['a']}"]
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            assert client.generate([1], 3, ignore_eos=True).tokens == [null_tokens((1,), 3)]
        finally:
            again.terminate()
            assert again.wait(5) == 0


def test_a_source_comes_back_with_an_earlier_clock(build: Path, tmp_path: Path, runners: Runners) -> None:
    """The devices do not take its requests for late ones of its former life."""
    env = patched_runners(tmp_path / "early", "time.time_ns = lambda: 10**9")
    runners = runners.patched("a")
    with runners.launch(build, floor_s=15.0, restart=False) as ring:
        with ring.client() as client:
            client.generate([1], 2)
        os.kill(ring.pids["a"], signal.SIGKILL)
        command = [*runners.command("a"), "--bundle", str(build / "devices" / "a")]
        command += ["--listen", ring.addresses["a"]]
        command += [f"--peer={name}={ring.addresses[name]}" for name in ("b", "c")]
        again = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env}, text=True)
        try:
            assert again.stdout is not None
            assert "listens" in again.stdout.readline()
            with ring.client() as client:
                for _ in range(4):
                    assert client.generate([1], 3, ignore_eos=True).tokens == [null_tokens((1,), 3)]
        finally:
            again.terminate()
            again.communicate()


def test_an_interrupt_while_the_runners_start(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, spawning = LocalRing._spawn, threading.Event()

    def slowly(ring: LocalRing, name: str) -> Any:
        if name == "b":
            spawning.set()
            time.sleep(0.3)
        return spawn(ring, name)

    class Interrupted(threading.Event):
        happened = False

        def wait(self, timeout: float | None = None) -> bool:
            if not self.happened:
                self.happened = spawning.wait()
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(LocalRing, "_spawn", slowly)
    before = children()
    ring = LocalRing(build, LocalSettings(floor_s=FLOOR_S))
    ring._keeper._started = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ring.start()
    assert len(ring.pids) == 1
    ring.close()
    assert not ring._keeper.is_alive
    assert children() == before, "nor is one started later"


def test_nothing_is_left_when_the_parent_is_killed(build: Path, runners: Runners) -> None:
    program = (
        "import time; from pathlib import Path, PosixPath; from tests.runtime.runners import Runners\n"
        f"ring = {runners}.launch(Path({str(build)!r})); print(*ring.pids.values(), flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    os.kill(pids[1], signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5.0
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_reseal_another_wire_of_the_same_plan(build: Path, runners: Runners) -> None:
    """A device whose build has other shapes under the same plan id: its messages do not pass."""
    path = build / "devices" / "b" / "build.json"
    values = {
        "hidden_1": {"dtype": "float32", "shape": ["batch", "sequence", HIDDEN + 1]},
        "hidden_2": {"dtype": "float32", "shape": ["batch", "sequence", HIDDEN]},
    }
    reseal(path, values=values)
    with runners.launch(build) as ring, ring.client() as client:
        with pytest.raises(RunError, match="'hidden_1' has the shape") as caught:
            client.generate([1, 2], 3)
        assert caught.value.where == "a -> b"
