"""Headers that are made before their messages come or go: the same as without, and nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zmq

from partc.errors import RunError
from partc.format.role import load_role
from partc.runtime.foresight import Foresight
from partc.runtime.links import Arrived, Failed, LinkEvent, Links
from partc.runtime.shell.transport import Message, Origin, Transport
from partc.runtime.wire import Data, Opening, Step, decode, encode_control, encode_data, to_frame
from tests.runtime.bundles import HIDDEN, LENGTH, PLAN, language_model

DIMS = {"batch": 1, "sequence": 1}
VALUES = (("hidden_1", "float32", (1, 1, HIDDEN)),)


class Nowhere:
    """A transport."""

    def send(self, origin: Origin, frames: Sequence[bytes | memoryview]) -> bool:
        return True


class Receiving:
    """The links of device b, and what comes there."""

    def __init__(self, build: Path) -> None:
        self.links = Links(load_role(build / "devices" / "b"), cast(Transport, Nowhere()), {})
        self.receive([encode_control("hello", bytes.fromhex(PLAN), 0, {"name": "a", "session": 9})])

    def receive(self, frames: Sequence[bytes | memoryview], route: bytes = b"route") -> list[LinkEvent]:
        message = Message(route, "a", [zmq.Frame(bytes(frame)) for frame in frames])
        return list(self.links.handle(message, 0.0))

    def steps(self, count: int) -> None:
        """All of a request up to a step, with time between them."""
        for number in range(count):
            assert [type(event) for event in self.receive(message(number))] == [Arrived]
            self.links.look_ahead()


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("foresight") / "build")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Headers that had to be read."""
    found: list[bytes] = []

    def note(frame: bytes | memoryview, limit: int) -> dict[str, Any]:
        found.append(bytes(frame))
        return decode(frame, limit)

    monkeypatch.setattr("partc.runtime.links.decode", note)
    return found


def test_the_third_of_a_kind_is_known_before_it_comes(build: Path, unread: list[bytes]) -> None:
    end = Receiving(build)
    end.steps(3)
    unread.clear()
    (arrived,) = end.receive(message(3))
    assert unread == []
    assert isinstance(arrived, Arrived)
    assert (arrived.peer, arrived.step) == ("a", data(3).step)
    np.testing.assert_array_equal(arrived.values["hidden_1"], tensor(3))


def test_other_headers_are_read(build: Path, unread: list[bytes]) -> None:
    end = Receiving(build)
    end.steps(3)
    unread.clear()
    header = encode_data(data(3, position=9))
    (arrived,) = end.receive([header, to_frame(tensor(3))])
    assert unread == [header]
    assert isinstance(arrived, Arrived)
    assert arrived.step.position == (9,)


def test_a_repetition_is_dropped(build: Path) -> None:
    end = Receiving(build)
    end.steps(3)
    assert len(end.receive(message(3))) == 1
    assert end.receive(message(3)) == []


def test_frames_are_held_against_the_header(build: Path) -> None:
    end = Receiving(build)
    end.steps(3)
    (failed,) = end.receive([*message(3)[:1], b"1234"])
    assert isinstance(failed, Failed)
    assert "has 4 bytes" in failed.error.message


def test_a_header_is_known_of_one_peer_only(build: Path, unread: list[bytes]) -> None:
    end = Receiving(build)
    end.steps(3)
    unread.clear()
    assert end.receive(message(3), b"another connection") == []
    assert len(unread) == 1


def test_no_header_beyond_the_plan_is_foreseen(build: Path, unread: list[bytes]) -> None:
    end = Receiving(build)
    end.steps(LENGTH)
    unread.clear()
    (failed,) = end.receive(message(LENGTH))
    assert len(unread) == 1
    assert isinstance(failed, Failed)
    assert "max_sequence" in failed.error.message


def test_requests_in_turns(build: Path, unread: list[bytes]) -> None:
    end = Receiving(build)
    for number in range(4):
        for slot in range(2):
            unread.clear()
            header = encode_data(data(number, seq=2 * number + slot, slot=slot))
            assert len(end.receive([header, to_frame(tensor(number))])) == 1
        end.links.look_ahead()
    assert unread == []


@dataclass
class Numbers:
    """A sender."""

    next_seq: int
    session: int
    epoch: int


def test_headers_that_go_are_those_of_their_messages() -> None:
    foresight = Foresight(lambda peer, data: ())
    going = [data(number) for number in range(6)]
    going += [
        data(6, position=2),
        data(7, seq=11),
        data(0, request=8),
        data(1, request=8),
        data(2, request=8),
        data(3, request=8),
    ]
    foreseen = []
    for each in going:
        header = ready(foresight, each)
        foreseen.append(header is not None)
        assert (header or foresight.write("b", each)) == encode_data(each)
        foresight.look_ahead()
    # From the second token of a request on, but where something is not what followed on the last two.
    assert foreseen == [False] * 3 + [True] * 3 + [False, False] + [False] * 3 + [True]


@pytest.mark.parametrize("changed", [{"session": 4}, {"epoch": 1}, {"next_seq": 8}], ids=str)
def test_no_header_of_another_life_of_the_link(changed: dict[str, int]) -> None:
    foresight = Foresight(lambda peer, data: ())
    for number in range(3):
        foresight.write("b", data(number))
        foresight.look_ahead()
    assert ready(foresight, data(3), **changed) is None
    assert ready(foresight, data(3)) == encode_data(data(3))


def ready(foresight: Foresight, going: Data, **changed: int) -> bytes | None:
    """The header of a message to b, if it was made ahead."""
    names = tuple(name for name, _, _ in going.values)
    shapes = [shape for _, _, shape in going.values]
    numbers = {"next_seq": going.seq, "session": going.session, "epoch": going.epoch, **changed}
    return foresight.header("b", going.step, names, shapes, Numbers(**numbers))


def test_a_refused_header_is_forgotten() -> None:
    def refuse(peer: str, data: Data) -> tuple[int, ...]:
        raise RunError("not here")

    foresight = Foresight(refuse)
    for number in range(1, 3):
        foresight.came("a", data(number))
        foresight.look_ahead()
    assert foresight.read("a", encode_data(data(3))) is None


def data(
    number: int, *, seq: int | None = None, slot: int = 0, position: int | None = None, request: int = 7
) -> Data:
    """The message of a step of a request whose prompt has one token."""
    place = number if position is None else position
    phase, opening = ("decode", None) if number else ("prefill", Opening({}))
    step = Step(request + slot, slot, number, phase, DIMS, (place,), (1,), opening)
    return Data(bytes.fromhex(PLAN), 0, 9, number if seq is None else seq, step, VALUES)


def message(number: int) -> list[bytes | memoryview]:
    return [encode_data(data(number)), to_frame(tensor(number))]


def tensor(number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full((1, 1, HIDDEN), number, np.float32)
