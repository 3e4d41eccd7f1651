"""Devices that a step comes back to: several messages of one device in a step, none taken for another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import helper

from partc.errors import BundleError, RunError
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.links import Arrived, Failed, LinkEvent, Links
from partc.runtime.shell.launch import launch_local
from partc.runtime.shell.transport import Message, Origin, Transport
from partc.runtime.wire import Data, Opening, Step, decode, encode_control, encode_data, to_frame
from tests.runtime.bundles import HIDDEN, PLAN, Build, Device, Part, expected_tokens, make_model, reseal
from tests.runtime.returning import PROGRAM_B, returning_model
from tests.runtime.test_executor import begin, network, step_of

PROMPTS = [[1, 2, 5], [4], [7, 8, 9, 10, 11]]
COUNT = 12


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return returning_model("null").write(tmp_path_factory.mktemp("returning") / "build")


@pytest.mark.ort
def test_an_encrypted_ring(tmp_path: Path) -> None:
    """Alone, in a batch and in flight with others: each gets the tokens of the whole model."""
    build = returning_model().write(tmp_path / "build")
    with launch_local(build) as ring, ring.client() as client:
        alone = [client.generate(prompt, COUNT, ignore_eos=True).tokens[0] for prompt in PROMPTS]
        assert alone == [expected_tokens(prompt, COUNT) for prompt in PROMPTS]
        assert client.generate(PROMPTS, COUNT, ignore_eos=True).tokens == alone
        prompts = [*PROMPTS, *PROMPTS]
        requests = [client.submit(prompt, max_new_tokens=COUNT, ignore_eos=True) for prompt in prompts]
        assert [request.result().tokens[0] for request in requests] == [*alone, *alone]
        result = client.generate(PROMPTS[0], 2, ignore_eos=True, trace=True)
    crossed = sorted((item.step, item.peer, item.device, *item.values) for item in result.trace)
    links = [("a", "b", "hidden_1"), ("a", "b", "sum"), ("b", "a", "hidden_2"), ("b", "a", "token")]
    assert crossed == sorted((step, *link) for step in range(2) for link in [*links, ("b", "b", "logits")])
    assert result.timings["b"].column("received_bytes")[0] == 2 * 3 * HIDDEN * 4


def test_messages_of_one_peer_are_told_apart_by_their_values(build: Path) -> None:
    """The second message before the first one: it waits for its `recv`."""
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    hidden = {name: np.ones((1, 3, HIDDEN), np.float32) for name in ("hidden_1", "sum")}
    receiver = net.executors["b"]
    receiver.deliver("a", step_of(0, 0), {"sum": hidden["sum"]})
    assert receiver.doing() == "waits for hidden_1 from a (step 0)"
    assert not receiver.ready
    net.deliver(0)
    net.advance()
    assert receiver.doing() == "idle", "it has gone to the end"


def test_a_message_that_was_used_may_not_come_again(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    peer, sender, step, values = net.air[0]
    net.deliver(0)
    net.advance()
    assert net.executors["b"].doing() == "waits for sum from a (step 0)"
    with pytest.raises(RunError, match="sent hidden_1 twice"):
        net.executors[peer].deliver(sender, step, values)


def test_messages_of_the_next_step_may_wait_as_many_as_there_are(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    net.deliver(0)
    array = np.ones((1, 1, HIDDEN), np.float32)
    receiver = net.executors["b"]
    receiver.deliver("a", step_of(0, 1), {"hidden_1": array})
    receiver.deliver("a", step_of(0, 1), {"sum": array})
    with pytest.raises(RunError, match="is at step 1"):
        receiver.deliver("a", step_of(0, 1), {"hidden_1": array})


@pytest.mark.ort
def test_submodules_of_one_device_share_the_memory_of_their_activations(tmp_path: Path) -> None:
    """Each of the four holds 96 MB while it runs; together they keep little more than one does."""
    rows, count = 1 << 14, 4
    build = _large_activations(count).write(tmp_path / "build")
    folder = build / "devices" / "a"
    engine = load_engine(load_role(folder), folder)
    engine.reset(0, {"rows": rows})
    before = _resident_bytes()
    for _ in range(2):
        for number in range(count):
            engine.run(f"part_{number}", 0, [np.ones((rows, HIDDEN), np.float32)], {"rows": rows})
    assert _resident_bytes() - before < 2 * rows * 1536 * 4


def _large_activations(count: int) -> Build:
    """Parts whose largest value is f32[rows, 1536]."""
    shape: list[int | str] = ["rows", HIDDEN]
    parts, lines = [], []
    for number in range(count):
        source, target = f"v{number}", f"v{number + 1}"
        nodes = [
            helper.make_node("MatMul", [source, "wide"], ["large"]),
            helper.make_node("MatMul", ["large", "narrow"], [target]),
        ]
        weights = {"wide": np.ones((HIDDEN, 1536), np.float32), "narrow": np.ones((1536, HIDDEN), np.float32)}
        model = make_model(nodes, [(source, "float32", shape)], [(target, "float32", shape)], weights)
        parts.append(Part(f"part_{number}", [source], [target], model))
        lines.append(f"run part_{number} ({source}) -> ({target})\n")
    last = f"v{count}"
    values = {f"v{number}": ("float32", shape) for number in range(1, count + 1)}
    device = Device(parts, {"prefill": "".join([*lines, f"emit {last}\n"])}, values)
    ends = [("v0", "float32", shape)], [(last, "float32", shape)]
    return Build({"a": device}, *ends, dims={"rows": 1 << 14}, task="graph")


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Far:
    """The links of one device over a transport that takes everything."""

    def __init__(self, build: Path, device: str, peer: str) -> None:
        self.links = Links(load_role(build / "devices" / device), cast(Transport, self), {})
        self.peer = peer
        self.links.connect({peer: "somewhere"})
        self.receive([encode_control("hello", bytes.fromhex(PLAN), 0, {"name": peer, "session": 9})])

    def connect(self, name: str, address: str) -> None:
        """Nothing to do."""

    def send(self, origin: Origin, frames: Sequence[bytes | memoryview]) -> bool:
        decode(frames[0], 1 << 16)
        return True

    def receive(self, frames: Sequence[bytes | memoryview], origin: Origin = b"route") -> list[LinkEvent]:
        message = Message(origin, self.peer, [zmq_frame(frame) for frame in frames])
        return list(self.links.handle(message, 0.0))

    def data(self, seq: int, name: str) -> list[LinkEvent]:
        step = Step(seq, 0, 0, "prefill", {"batch": 1, "sequence": 1}, (0,), (1,), Opening({}))
        values = ((name, "float32", (1, 1, HIDDEN)),)
        header = encode_data(Data(bytes.fromhex(PLAN), 0, 9, seq, step, values))
        return self.receive([header, to_frame(np.zeros((1, 1, HIDDEN), np.float32))])


def zmq_frame(frame: bytes | memoryview) -> Any:
    import zmq

    return zmq.Frame(bytes(frame))


def test_each_message_of_the_program_is_awaited_and_no_other(build: Path) -> None:
    far = Far(build, "b", "a")
    assert [type(event) for event in far.data(0, "hidden_1")] == [Arrived]
    assert far.data(0, "hidden_1") == [], "a repetition"
    assert [type(event) for event in far.data(1, "sum")] == [Arrived]
    (event,) = far.data(2, "hidden_2")
    assert isinstance(event, Failed)
    assert "is not what prefill awaits from a" in event.error.message


def test_both_ends_of_a_link_have_room_for_all_messages_of_a_step(build: Path) -> None:
    """8 + 4 × 3 requests × 2 messages + 64 = 96."""
    receiver = Far(build, "b", "a")
    assert receiver.data(95, "sum") == []
    (event,) = receiver.data(96, "sum")
    assert isinstance(event, Failed)
    assert "out of the window" in event.error.message
    sender = Far(build, "a", "b")
    fields = {"name": "b", "next": 0, "info": {}}
    sender.receive([encode_control("welcome", bytes.fromhex(PLAN), 0, fields)], "b")
    array = np.zeros((1, 1, HIDDEN), np.float32)
    for number in range(96):
        sender.links.send_data("b", step_of(number, 0), ("sum",), [array])
    with pytest.raises(RunError, match="96 messages were sent without an acknowledgement"):
        sender.links.send_data("b", step_of(96, 0), ("sum",), [array])


def test_a_message_stands_in_a_program_once(build: Path, tmp_path: Path) -> None:
    shutil.copytree(build / "devices" / "b", tmp_path / "b")
    path = tmp_path / "b" / "placement.json"
    programs = json.loads(path.read_text())["programs"]
    programs["prefill"]["b"] = "recv hidden_1 from a\n" + PROGRAM_B
    reseal(path, programs=programs)
    with pytest.raises(BundleError, match="waits for hidden_1 from a, which does not send just that, once"):
        load_role(tmp_path / "b")
