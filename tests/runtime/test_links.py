"""The protocol over a transport that only notes what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zmq

from partc.format.role import load_role
from partc.runtime.links import Arrived, LinkEvent, Links
from partc.runtime.shell.transport import Message, Origin, Transport
from partc.runtime.wire import Data, Opening, Step, decode, encode_control, encode_data, to_frame
from tests.runtime.bundles import HIDDEN, PLAN, language_model

ROUTE = b"route"


class Notes:
    """A transport."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, origin: Origin, frames: Sequence[bytes | memoryview]) -> bool:
        self.sent.append(decode(frames[0], 1 << 16))
        return True


class End:
    """The links of device b, and what a sends to it."""

    def __init__(self, build: Path) -> None:
        self.notes = Notes()
        self.links = Links(load_role(build / "devices" / "b"), cast(Transport, self.notes), {})
        self.receive([encode_control("hello", bytes.fromhex(PLAN), 0, {"name": "a", "session": 9})])

    def receive(self, frames: Sequence[bytes | memoryview]) -> list[LinkEvent]:
        message = Message(ROUTE, "a", [zmq.Frame(bytes(frame)) for frame in frames])
        return list(self.links.handle(message, 0.0))

    def data(self, epoch: int, seq: int) -> list[LinkEvent]:
        step = Step(seq, 0, 0, "prefill", {"batch": 1, "sequence": 1}, (0,), (1,), Opening({}))
        values = (("hidden_1", "float32", (1, 1, HIDDEN)),)
        header = encode_data(Data(bytes.fromhex(PLAN), epoch, 9, seq, step, values))
        return self.receive([header, to_frame(np.zeros((1, 1, HIDDEN), np.float32))])

    def acknowledged(self) -> list[int]:
        return [fields["seq"] for fields in self.notes.sent if fields["kind"] == "ack"]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("links") / "build")


def test_acknowledged_by_number_or_by_time(build: Path) -> None:
    end = End(build)
    for seq in range(8):
        assert [type(event) for event in end.data(0, seq)] == [Arrived]
    assert end.acknowledged() == [], "the device has more urgent work"
    assert end.links.tick(0.0) is None
    assert end.acknowledged() == [8]
    end.data(0, 8)
    due = end.links.tick(0.0)
    assert due is not None
    assert end.links.tick(due) is None
    assert end.acknowledged() == [8, 9]


def test_frames_of_another_epoch_get_no_acknowledgement(build: Path) -> None:
    end = End(build)
    for seq in range(20):
        assert end.data(1, seq) == []
    assert end.links.tick(1.0) is None
    assert end.acknowledged() == []
    assert [type(event) for event in end.data(0, 0)] == [Arrived], "the one in force goes on"
