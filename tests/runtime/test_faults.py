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
from typing import Any, Self

import msgspec
import pytest
import zmq

from partc.errors import BundleError, InternalError, PartcError, RunError
from partc.format.message_parts import Opening, Problem, Row, Sampling, TensorSpec
from partc.format.messages import AnyMessage, Data, Error, Hello, Message, Refuse, Submit, Welcome
from partc.format.role import load_role
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, LocalSettings, launch_local
from partc.runtime.core.events import Connected, Disconnected, Received
from partc.runtime.shell.keys import KeyPair, Keys, load_client_keys, load_device_keys, make_keys
from partc.runtime.shell.limits import client_frame_limit
from partc.runtime.shell.transport import Transport
from tests.runtime.bundles import HIDDEN, LENGTH, PLAN, expected_tokens, language_model, reseal
from tests.runtime.patched import patched_engines, patched_runners

pytestmark = pytest.mark.ort

FLOOR_S = 1.0
"""Instead of the 5 seconds of daily use."""
SLACK_S = 1.0
"""What a busy test machine may add."""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model().write(tmp_path / "build")


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


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_killed_device(build: Path, victim: str) -> None:
    with launch_local(build, restart=False) as ring, ring.client() as client:
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
        assert time.monotonic() - began < 5.0
        assert f"{victim} closed its connection" in error.message
        assert error.hint


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_stopped_device(build: Path, victim: str) -> None:
    with launch_local(build, floor_s=FLOOR_S, rejoin_s=0.0) as ring, ring.client() as client:
        client.generate([1], 2)
        os.kill(ring.pids[victim], signal.SIGSTOP)
        began = time.monotonic()
        error = long_request(client)
        assert time.monotonic() - began < FLOOR_S + SLACK_S
        assert error.where == victim
        assert error.hint


def test_a_device_that_hangs_but_answers_sockets(tmp_path: Path) -> None:
    """Its loop computes for ever while ZeroMQ's own thread keeps the connections alive."""
    build = language_model("null").write(tmp_path / "build")
    env = patched_engines(tmp_path / "hang", "time.sleep(60)", "b")
    with launch_local(build, floor_s=FLOOR_S, rejoin_s=0.0, env=env) as ring, ring.client() as client:
        began = time.monotonic()
        with pytest.raises(RunError, match=r"no progress for 1\.0 s in step 0: .*b computes") as caught:
            client.generate([1], 2)
        assert (caught.value.where, caught.value.cause) == ("b", "stalled")
        assert time.monotonic() - began < FLOOR_S + SLACK_S


def test_a_bug_in_a_runner_is_told_with_its_traceback(tmp_path: Path) -> None:
    build = language_model("null").write(tmp_path / "build")
    env = patched_engines(tmp_path / "broken", "1 / 0", "c")
    with launch_local(build, env=env) as ring, ring.client() as client:
        with pytest.raises(InternalError, match="the runner of c failed") as caught:
            client.generate([1], 2)
        assert "ZeroDivisionError" in caught.value.message


def test_a_flipped_byte(build: Path) -> None:
    path = build / "devices" / "b" / "part_1.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"part_1\.onnx: the runner of b ended: the file is damaged") as caught:
        launch_local(build)
    assert "compile again" in str(caught.value.hint)


def test_a_device_of_another_build(build: Path, tmp_path: Path) -> None:
    other = language_model(plan_id="ab" * 32).write(tmp_path / "other")
    shutil.rmtree(build / "devices" / "b")
    shutil.copytree(other / "devices" / "b", build / "devices" / "b")
    make_keys(build, ["a", "b", "c"], "a")
    with pytest.raises(RunError, match=f"build {'ab' * 6}") as caught:
        launch_local(build)
    assert "copy the folders of one build" in str(caught.value.hint)


def test_keys_of_another_build(build: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "other", ["a", "b", "c"], "a")
    shutil.rmtree(build / "devices" / "b" / "keys")
    shutil.copytree(tmp_path / "other" / "devices" / "b" / "keys", build / "devices" / "b" / "keys")
    with pytest.raises(RunError, match="do not have each other's keys") as caught:
        launch_local(build)
    assert "partc keys" in str(caught.value.hint)


def test_a_missing_key(build: Path) -> None:
    (build / "devices" / "c" / "keys" / "secret.key").unlink()
    with pytest.raises(RunError, match="the keys are missing") as caught:
        launch_local(build)
    assert "partc keys" in str(caught.value.hint)


def test_an_unknown_client(build: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    shutil.copytree(build, stranger)
    make_keys(tmp_path / "other", ["a", "b", "c"], "a")
    shutil.copy(tmp_path / "other" / "keys" / "client.secret", stranger / "keys" / "client.secret")
    with launch_local(build) as ring, ring.client() as client:
        began = time.monotonic()
        with pytest.raises(RunError, match="does not take this client's key"):
            Client.connect(stranger, ring.addresses["a"])
        assert time.monotonic() - began < 2.0
        assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]


def test_a_client_of_another_build(build: Path, tmp_path: Path) -> None:
    other = language_model(plan_id="cd" * 32).write(tmp_path / "other")
    shutil.rmtree(other / "keys")
    shutil.copytree(build / "keys", other / "keys")
    with launch_local(build) as ring, pytest.raises(RunError, match=f"client has build {'cd' * 6}"):
        Client.connect(other, ring.addresses["a"])


def test_a_client_in_the_clear(build: Path) -> None:
    with (
        launch_local(build) as ring,
        pytest.raises(RunError, match="takes no client without a key") as caught,
    ):
        Client.connect(build, ring.addresses["a"], insecure=True, floor_s=FLOOR_S)
    assert caught.value.hint == "leave --insecure out"


def test_a_client_at_a_device_that_is_not_the_source(build: Path) -> None:
    with launch_local(build) as ring, pytest.raises(RunError, match="does not take this client's key"):
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


def test_a_port_in_use(build: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            RunError, match=f"{address}: the runner of b ended: cannot listen: Address"
        ) as caught:
            launch_local(build, listen={"b": address})
    assert "--listen" in str(caught.value.hint)


def test_not_a_build(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a build"):
        launch_local(tmp_path)


def test_a_device_is_missing(build: Path) -> None:
    """Requests wait for the ring, but not for ever."""
    with launch_local(build, floor_s=FLOOR_S, restart=False) as ring, ring.client() as client:
        os.kill(ring.pids["c"], signal.SIGKILL)
        long_request(client)
        began = time.monotonic()
        with pytest.raises(RunError, match="c has not joined the ring"):
            client.generate([1], 2)
        assert time.monotonic() - began < FLOOR_S + SLACK_S


def test_a_device_comes_back(build: Path) -> None:
    """A runner that starts again is taken in again, at the same address."""
    with launch_local(build, floor_s=15.0, restart=False) as ring, ring.client() as client:
        os.kill(ring.pids["c"], signal.SIGKILL)
        long_request(client)
        command = [sys.executable, "-m", "partc.runtime", "--bundle", str(build / "devices" / "c")]
        command += ["--listen", ring.addresses["c"], "--peer", f"a={ring.addresses['a']}"]
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]
        finally:
            again.terminate()
            assert again.wait(5) == 0


def test_a_source_comes_back_with_an_earlier_clock(build: Path, tmp_path: Path) -> None:
    """The devices do not take its requests for late ones of its former life."""
    env = patched_runners(tmp_path / "early", "time.time_ns = lambda: 10**9")
    with launch_local(build, floor_s=15.0, restart=False) as ring:
        with ring.client() as client:
            client.generate([1], 2)
        os.kill(ring.pids["a"], signal.SIGKILL)
        command = [sys.executable, "-m", "partc.runtime", "--bundle", str(build / "devices" / "a")]
        command += ["--listen", ring.addresses["a"]]
        command += [f"--peer={name}={ring.addresses[name]}" for name in ("b", "c")]
        again = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env}, text=True)
        try:
            assert again.stdout is not None
            assert "listens" in again.stdout.readline()
            with ring.client() as client:
                for _ in range(4):
                    assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]
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
        ring.start(10.0)
    assert len(ring.pids) == 1
    ring.close()
    assert not ring._keeper.is_alive
    assert children() == before, "nor is one started later"


def test_nothing_is_left_when_the_parent_is_killed(build: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from partc.runtime.client.launch import launch_local\n"
        f"ring = launch_local(Path({str(build)!r})); print(*ring.pids.values(), flush=True); time.sleep(60)"
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


# -- participants that have the keys, but do not keep to the protocol


class Impostor:
    """A client with the key of a device, which sends what it likes to another device."""

    def __init__(self, build: Path, name: str, target: str, address: str) -> None:
        role = load_role(build / "devices" / target)
        keys = load_client_keys(build) if name == "client" else load_device_keys(build / "devices" / name)
        self.transport = Transport(keys, client_frame_limit(role), 5.0)
        self.transport.connect(target, address)
        self.target, self.name = target, name
        self.placement = bytes.fromhex(role.placement_id)
        self.until(Connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close()

    def until(self, kind: type) -> list[object]:
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            events = self.transport.poll(0.1)
            if any(isinstance(event, kind) for event in events):
                return list(events)
        raise AssertionError(f"no {kind.__name__}")

    def send(self, message: Message, *frames: bytes) -> None:
        self.transport.send(self.target, message, frames)

    def greet(self, name: str, plan: str = PLAN) -> AnyMessage:
        """Say hello; the answer."""
        digest = bytes.fromhex(plan)
        self.send(Hello(name=name, session=1, plan=digest, placement=self.placement, epoch=0, incarnation=1))
        return self.answer()

    def answer(self) -> AnyMessage:
        return next(event.message for event in self.until(Received) if isinstance(event, Received))


def test_a_device_with_another_name_than_its_key(build: Path) -> None:
    with launch_local(build) as ring, Impostor(build, "c", "a", ring.addresses["a"]) as other:
        answer = other.greet("b")
        assert isinstance(answer, Refuse)
        assert "the key of 'c' does not belong to 'b'" in answer.problem.message


def test_data_before_hello(build: Path) -> None:
    with launch_local(build) as ring, Impostor(build, "a", "b", ring.addresses["b"]) as other:
        other.send(data((Row(1, 0, 0, 0, 1),), ()))
        assert isinstance(other.greet("a"), Welcome), "what came before is ignored"


def data(rows: tuple[Row, ...], specs: tuple[TensorSpec, ...]) -> Data:
    """The first message of a prompt of two tokens."""
    return Data(
        session=1,
        epoch=0,
        seq=0,
        phase="prefill",
        dims={"batch": 1, "sequence": 2},
        rows=rows,
        values=specs,
        open=(Opening(rows[0].request, Sampling()),),
    )


ROW = Row(2**50, 0, 0, 0, 2)
GOOD = bytes(2 * HIDDEN * 4)


@pytest.mark.parametrize(
    ("spec", "frame", "message"),
    [
        (TensorSpec("hidden_1", "float16", (1, 2, HIDDEN)), GOOD[: len(GOOD) // 2], "is float16"),
        (TensorSpec("hidden_1", "float32", (1, 3, HIDDEN)), GOOD, "has the shape"),
        (TensorSpec("hidden_1", "float32", (1, 2, HIDDEN)), GOOD[:-4], "bytes"),
        (TensorSpec("hidden_2", "float32", (1, 2, HIDDEN)), GOOD, "not what prefill awaits"),
    ],
    ids=["dtype", "shape", "bytes", "value"],
)
def test_a_failed_check_ends_the_requests(build: Path, spec: TensorSpec, frame: bytes, message: str) -> None:
    with (
        launch_local(build) as ring,
        ring.client() as client,
        Impostor(build, "a", "b", ring.addresses["b"]) as other,
    ):
        os.kill(ring.pids["c"], signal.SIGSTOP)
        requests = [client.submit([1, 2], max_new_tokens=3) for _ in range(3)]
        client.wait(requests, 0.3)
        assert isinstance(other.greet("a"), Welcome)
        other.send(data((ROW,), (spec,)), frame)
        client.wait(requests, 2.0)
        for request in requests:
            assert isinstance(request.outcome, RunError)
            assert message in request.outcome.message
            assert request.outcome.where == "a -> b"


def test_a_frame_beyond_the_cap_closes_the_connection(build: Path) -> None:
    with launch_local(build) as ring, ring.client() as client:
        with Impostor(build, "client", "a", ring.addresses["a"]) as other:
            other.transport.send_frames("a", [bytes(10_000_000)])
            other.until(Disconnected)
        assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]


@pytest.mark.parametrize(
    "message",
    [Welcome(name="client", incarnation=1, epoch=0, next=0, info={}), Refuse(problem=Problem("refused", ""))],
    ids=["welcome", "refuse"],
)
def test_answers_of_a_client_to_nothing(build: Path, message: Message) -> None:
    with launch_local(build) as ring, ring.client() as client:
        with Impostor(build, "client", "a", ring.addresses["a"]) as other:
            assert isinstance(other.greet("client"), Welcome)
            other.send(message)
            answer = other.answer()
            assert isinstance(answer, Refuse)
            assert "answers a question that was not asked" in answer.problem.message
        assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]


SUBMIT = Submit(
    ticket=bytes(16),
    prompts=((1,),),
    max_new_tokens=2,
    sampling=Sampling(),
    stop=(),
    ignore_eos=True,
    trace=False,
    values=(),
)


def test_a_fractional_parameter(build: Path) -> None:
    """`Sampling` refuses it at the client already; so this one does not use it."""
    with launch_local(build) as ring, ring.client() as client:
        with Impostor(build, "client", "a", ring.addresses["a"]) as other:
            assert isinstance(other.greet("client"), Welcome)
            for name in ("top_k", "seed"):
                fields = msgspec.to_builtins(SUBMIT, builtin_types=(bytes,))
                fields["sampling"] = {"temperature": 1.0, name: 2.5}
                other.transport.send_frames("a", [msgspec.msgpack.encode(fields)])
                answer = other.answer()
                assert isinstance(answer, Refuse)
                assert f"$.sampling.{name}" in answer.problem.message
            other.send(SUBMIT)
            assert not isinstance(other.answer(), Error | Refuse), "and it goes on"
        assert client.generate([1], 3, ignore_eos=True).tokens == [expected_tokens([1], 3)]


def test_an_unknown_key_never_gets_through(build: Path) -> None:
    """Not even a message that would be well-formed."""
    with launch_local(build) as ring:
        public, secret = zmq.curve_keypair()
        known = load_client_keys(build).peers
        transport = Transport(Keys(KeyPair(public.decode(), secret.decode()), known), 1 << 16, 5.0)
        transport.connect("a", ring.addresses["a"])
        end = time.monotonic() + 0.5
        events = [event for _ in range(5) for event in transport.poll(0.1) if time.monotonic() < end]
        assert not any(isinstance(event, Connected) for event in events)
        transport.close()


def test_reseal_another_wire_of_the_same_plan(build: Path) -> None:
    """A device whose build has other shapes under the same plan id: its messages do not pass."""
    path = build / "devices" / "b" / "build.json"
    values = {
        "hidden_1": {"dtype": "float32", "shape": ["batch", "sequence", HIDDEN + 1]},
        "hidden_2": {"dtype": "float32", "shape": ["batch", "sequence", HIDDEN]},
    }
    reseal(path, values=values)
    with launch_local(build) as ring, ring.client() as client:
        with pytest.raises(RunError, match="'hidden_1' has the shape") as caught:
            client.generate([1, 2], 3)
        assert caught.value.where == "a -> b"
