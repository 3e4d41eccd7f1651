"""What a runner does with the commands of its core: a script stands instead of the core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from partc.errors import BundleError, RunError
from partc.format.dtypes import Array
from partc.format.role import Role, load_role
from partc.runtime.core.commands import (
    Command,
    Compute,
    Connect,
    Leave,
    Load,
    ReadRows,
    Release,
    Reset,
    WriteRows,
)
from partc.runtime.core.events import Computed, Connected, Event, Loaded, LoadFailed, RowsRead
from partc.runtime.engines.null import NullEngine
from partc.runtime.shell.runner import Runner
from partc.runtime.shell.settings import Settings
from partc.runtime.shell.transport import Transport
from tests.runtime.bundles import HIDDEN, language_model

DIMS = {"batch": 1, "sequence": 2}
NOBODY = "127.0.0.1:9"

Answers = Callable[[Event], Sequence[Command]]


class Script:
    """A core that answers every event as it is told, and leaves after the last one that is awaited."""

    has_requests = False
    deadline = None

    def __init__(self, answers: Answers, awaited: int) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []
        self._answers, self._awaited = answers, awaited

    def react(self, event: Event, now: float) -> list[Command]:
        self.events.append(event)
        self.times.append(now)
        return [*self._answers(event), *([Leave()] if len(self.events) == self._awaited else [])]

    def catch_up(self, now: float) -> list[Command]:
        return []


@pytest.fixture
def role(tmp_path: Path) -> Role:
    """Device b, which runs part_1 with a cache."""
    build = language_model("null").write(tmp_path / "build")
    return load_role(build / "devices" / "b")


def played(folder: Path, answers: Answers, awaited: int, **options: str) -> Script:
    """A runner of device b from its start until so many events have come."""
    runner = made(folder, **options)
    script = Script(answers, awaited)
    runner._device = script  # type: ignore[assignment]
    runner.serve()
    return script


def made(folder: Path, **options: str) -> Runner:
    given = {"a": NOBODY, "c": NOBODY}
    bundle = folder / "build" / "devices" / "b"
    options = {"listen": "127.0.0.1:0", **options}
    return Runner(Settings(bundle, peers=given, insecure=True, **options))  # type: ignore[arg-type]


def compute(position: int, resets: bool = False) -> Compute:
    inputs: list[Array] = [np.full((1, 2, HIDDEN), 0.5, np.float32), np.array([position])]
    return Compute("part_1", 0, inputs, DIMS, resets)


def read(role: Role, begin: int, end: int) -> ReadRows:
    (state,) = role.submodules["part_1"].states
    return ReadRows("part_1", 0, state.name, 0, begin, end)


def test_a_load_is_answered_while_nothing_else_happens(role: Role, tmp_path: Path) -> None:
    def answers(event: Event) -> Sequence[Command]:
        return [Load(3, ("part_1",)), Load(4, ("part_1",))] if event == Loaded() else []

    script = played(tmp_path, answers, awaited=3)
    assert script.events == [Loaded(), Loaded(3), Loaded(4)]
    assert script.times[-1] - script.times[0] < 1.0


def test_a_load_goes_on_beside_what_is_computed(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = NullEngine.run

    def slowly(*arguments: object) -> list[Array]:
        time.sleep(0.5)
        return run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(NullEngine, "run", slowly)

    def answers(event: Event) -> Sequence[Command]:
        return [compute(0, resets=True), Load(1, ("part_1",))] if event == Loaded() else []

    script = played(tmp_path, answers, awaited=3)
    assert [type(event) for event in script.events] == [Loaded, Loaded, Computed]
    assert script.times[1] - script.times[0] < 0.3, "it is told before the step is over"


def test_rows_are_written_and_read_in_the_order_of_the_commands(role: Role, tmp_path: Path) -> None:
    (state,) = role.submodules["part_1"].states
    shape = state.type.sizes(DIMS)
    rows = np.full((3, *shape[1:-2], shape[-1]), 5, np.float32).reshape(3, -1, shape[-1])

    def answers(event: Event) -> Sequence[Command]:
        if event != Loaded():
            return []
        return [
            Reset(0, DIMS),
            WriteRows("part_1", 0, state.name, 0, 0, rows),
            read(role, 0, 4),
            compute(1),
            read(role, 0, 4),
        ]

    script = played(tmp_path, answers, awaited=4)
    _, first, computed, second = script.events
    assert isinstance(first, RowsRead) and isinstance(second, RowsRead) and isinstance(computed, Computed)
    np.testing.assert_array_equal(first.rows[:, 0, 0], [5, 5, 5, 0])
    np.testing.assert_array_equal(second.rows[[0, 3]], first.rows[[0, 3]])
    assert not np.array_equal(second.rows[1:3], first.rows[1:3]), "the step wrote the rows 1 and 2"


def test_what_is_released_was_needed_by_nothing_before_and_may_come_back(role: Role, tmp_path: Path) -> None:
    def answers(event: Event) -> Sequence[Command]:
        if event == Loaded():
            return [compute(0, resets=True), Release(("part_1",)), Load(1, ("part_1",))]
        return [compute(0, resets=True)] if event == Loaded(1) else []

    script = played(tmp_path, answers, awaited=4)
    assert [type(event) for event in script.events] == [Loaded, Computed, Loaded, Computed]


@pytest.mark.parametrize(
    ("raised", "told"), [(None, "there is no sub-module"), (MemoryError, "not enough memory")]
)
def test_a_load_that_fails(
    role: Role,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: type[BaseException] | None,
    told: str,
) -> None:
    def answers(event: Event) -> Sequence[Command]:
        if event != Loaded():
            return []
        if raised is not None:
            monkeypatch.setattr(NullEngine, "load", lambda *_: (_ for _ in ()).throw(raised()))
        return [Load(7, ("part_1" if raised else "part_9",))]

    script = played(tmp_path, answers, awaited=2)
    failed = script.events[1]
    assert isinstance(failed, LoadFailed)
    assert failed.epoch == 7
    assert isinstance(failed.error, BundleError | RunError)
    assert told in failed.error.message


def test_a_bug_of_the_loader_ends_the_runner(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NullEngine, "load", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        played(tmp_path, lambda _: [], awaited=9)


def test_a_connection_tells_where_this_device_can_be_reached(role: Role, tmp_path: Path) -> None:
    """And a device whose address nobody knows yet is waited for."""
    peer = Transport(None, 1 << 16, 5.0)
    try:
        address = peer.listen("127.0.0.1:0")

        def answers(event: Event) -> Sequence[Command]:
            return [Connect("a", address)] if event == Loaded() else []

        script = played(tmp_path, answers, awaited=2)
        found = script.events[1]
        assert isinstance(found, Connected)
        assert found.peer == "a"
        assert found.address.startswith("127.0.0.1:")
        script = played(tmp_path, answers, awaited=2, advertise="198.51.100.4:15555")
        assert script.events[1] == Connected("a", "198.51.100.4:15555")
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (Connect("d", ""), "b: the address of d is not known yet; --peer d=HOST:PORT tells it"),
        (Connect("a", "192.0.2.7:1"), "b: 192.0.2.7:1: without encryption, nothing may leave this machine"),
    ],
    ids=["unknown", "impossible"],
)
def test_an_address_that_cannot_be_used_is_told_and_ends_nothing(
    role: Role, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: Connect, told: str
) -> None:
    def answers(event: Event) -> Sequence[Command]:
        return [command, Load(1, ())] if event == Loaded() else []

    assert played(tmp_path, answers, awaited=2).events == [Loaded(), Loaded(1)]
    assert told in capsys.readouterr().err


def test_a_device_that_was_sought_is_connected_to_when_its_address_comes(role: Role, tmp_path: Path) -> None:
    runner = made(tmp_path)
    peer = Transport(None, 1 << 16, 5.0)
    try:
        runner._meet({"a": NOBODY, "c": NOBODY})
        runner._known = {}
        runner._reach("c", "")
        runner._meet({"a": NOBODY, "c": peer.listen("127.0.0.1:0")})
        found = []
        end = time.monotonic() + 10.0
        while Connected("c") not in found and time.monotonic() < end:
            found += runner._transport.poll(0.1)
        assert Connected("c") in found
    finally:
        peer.close()
        runner._transport.close()
        runner._loader.end()
