"""`partc watch` on rings of real processes, with a battery and a thermal zone made up."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.format.names import BUILD_FILE
from partc.format.status import RingStatus
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.results import Tokens
from partc.runtime.client.ring_file import told_in_file
from partc.runtime.shell.sensors import ROOT_VARIABLE
from tests.runtime.bundles import language_model, reseal
from tests.runtime.fake_system import FakeSystem

LIMITS = {
    "b": {"battery": 0.3, "temperature_c": None, "memory_bytes": None},
    "c": {"battery": None, "temperature_c": 80.0, "memory_bytes": None},
}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> FakeSystem:
    made = FakeSystem(tmp_path_factory.mktemp("system"))
    made.battery(83)
    made.temperature(41)
    return made


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = language_model("null").write(tmp_path_factory.mktemp("watch") / "build")
    for name, limits in LIMITS.items():
        reseal(made / "devices" / name / BUILD_FILE, limits=limits)
    return made


@pytest.fixture(scope="module")
def ring(build: Path, system: FakeSystem) -> Iterator[LocalRing]:
    variables = {ROOT_VARIABLE: str(system.root)}
    with launch_local(build, env=variables) as made, told_in_file(build, made.source, insecure=False):
        yield made


def look(build: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `partc watch --once --json` prints of each device."""
    assert run(["watch", str(build), "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return {device["device"]: device for device in json.loads(line)["ring"]["devices"]}


def test_limits_that_are_reached(
    ring: LocalRing, build: Path, system: FakeSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    def found() -> dict[str, list[str]]:
        devices = look(build, capsys)
        return {name: device["vitals"]["reached"] for name, device in devices.items()}

    assert found() == {"a": [], "b": [], "c": []}
    system.battery(29)
    assert found() == {"a": [], "b": ["battery"], "c": []}
    system.temperature(85)
    assert found() == {"a": [], "b": ["battery"], "c": ["temperature"]}
    system.battery(29, "Charging")
    system.temperature(60)
    assert found() == {"a": [], "b": [], "c": []}


def test_readings_that_are_missing_are_null(
    ring: LocalRing, build: Path, system: FakeSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    system.battery(50)
    system.temperature(40)
    for device in look(build, capsys).values():
        assert device["is_present"]
        assert device["answer_s"] < 1
        assert device["vitals"]["readings"] == {
            "memory_available_bytes": None,
            "memory_own_bytes": None,
            "cpu_pressure": None,
            "memory_pressure": None,
            "temperature_c": 40.0,
            "battery": 0.5,
            "is_plugged": False,
        }
        assert all(device["vitals"]["links"].values())


def test_the_table_of_a_ring(ring: LocalRing, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(build), "--connect", ring.source, "--once"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line.split() for line in shown.splitlines()]
    assert [row[:3] for row in rows if row and row[0] in ring.addresses] == [
        ["a", "ok", "0"],
        ["b", "ok", "1"],
        ["c", "ok", "2"],
    ]


def test_times_are_measured_while_somebody_watches(ring: LocalRing) -> None:
    came: list[RingStatus] = []
    with ring.client() as client:
        ticket = client.watch(0.1, came.append)
        before = client.generate([1, 2], 20, ignore_eos=True).tokens
        while not came or not came[-1].steps or came[-1].running:
            client.listen(1.0)
        client.unwatch(ticket)
        assert client.generate([1, 2], 20, ignore_eos=True).tokens == before
        last = len(came)
        client.listen(0.5)
        assert len(came) == last, "nobody watches any more"
    steps = {pace.phase: pace for pace in came[-1].steps}
    assert (steps["prefill"].steps, steps["decode"].steps) == (1, 19)
    for device in came[-1].devices:
        assert device.vitals is not None
        runs = {(work.submodule, work.phase): work.runs for work in device.vitals.work}
        (first, last_submodule) = device.submodules[0]
        assert first == last_submodule
        assert runs[f"part_{first}", "decode"] == 19
        assert ("sample", "decode") in runs or device.device != "c"
        assert (
            sum(work.seconds for work in device.vitals.work if work.phase == "decode")
            < steps["decode"].seconds
        )


def test_a_device_that_hangs_is_shown_without_an_answer(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with launch_local(build) as ring, told_in_file(build, ring.source, insecure=False):
        os.kill(ring.pids["b"], signal.SIGSTOP)
        try:
            devices = look(build, capsys)
        finally:
            os.kill(ring.pids["b"], signal.SIGCONT)
        assert devices["b"]["vitals"] is devices["b"]["answer_s"] is None
        assert devices["a"]["vitals"] is not None
        assert look(build, capsys)["b"]["vitals"] is not None


def test_a_loss_is_told_with_its_cause(build: Path) -> None:
    came: list[RingStatus] = []
    with launch_local(build) as ring, ring.client() as client:
        undisturbed = client.generate([1, 2], 20, ignore_eos=True).tokens
        client.watch(0.1, came.append)

        def kill_once(tokens: Tokens) -> None:
            if tokens.step == 5:
                os.kill(ring.pids["b"], signal.SIGKILL)

        assert client.generate([1, 2], 20, ignore_eos=True, on_token=kill_once).tokens == undisturbed
        end = time.monotonic() + 10
        while not (came and came[-1].changes) and time.monotonic() < end:
            client.listen(1.0)
    (change,) = came[-1].changes
    assert (change.epoch, change.cause) == (1, "lost b")
    assert came[-1].epoch == 1
    assert 0 < change.stopped_s < 10


def test_a_feed_is_shown_as_it_comes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe stays open: more is to come."""
    reading, writing = os.pipe()
    state = {"epoch": 0, "placement": "", "devices": [{"device": "a"}]}
    os.write(writing, json.dumps({"time": "now", "planned_s": {}, "ring": state}).encode() + b"\n")
    with os.fdopen(reading) as stream, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", stream)
        assert run(["watch", "--feed", "-", "--once"]) == 0
    os.close(writing)
    assert "Ring at now, epoch 0" in capsys.readouterr().out


def test_a_feed_that_is_no_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n")))
    assert run(["watch", "--feed", "-"]) == 1
    assert "standard input: line 1" in capsys.readouterr().err


def test_no_ring_runs(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = language_model("null").write(tmp_path / "build")
    assert run(["watch", str(copy)]) == 1
    assert "the address of the source is not known" in capsys.readouterr().err


def test_a_source_that_is_gone_is_said_at_once(build: Path) -> None:
    """The command waits for it for 30 s; the first line about it comes long before."""
    with launch_local(build, restart=False) as ring:
        words = ["watch", str(build), "--connect", ring.source, "--every", "0.2s", "--json"]
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "partc.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        ) as watching:  # fmt: skip
            assert watching.stdout is not None
            first = json.loads(watching.stdout.readline())
            assert first["lost_s"] is None
            os.kill(ring.pids[first["ring"]["devices"][0]["device"]], signal.SIGKILL)
            began = time.monotonic()
            while json.loads(watching.stdout.readline())["lost_s"] is None:
                assert time.monotonic() < began + 20
            assert time.monotonic() < began + 20
            watching.kill()


def test_a_look_waits_for_figures_and_says_where_none_came(
    build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partc.cli.watch._MOST_ONCE_S", 2.0)
    with launch_local(build) as ring, told_in_file(build, ring.source, insecure=False):
        os.kill(ring.pids["b"], signal.SIGSTOP)
        try:
            assert run(["watch", str(build), "--once"]) == 0
        finally:
            os.kill(ring.pids["b"], signal.SIGCONT)
    shown = capsys.readouterr()
    assert "note: no figures of b came within 2 s" in shown.err
    row = next(line.split() for line in shown.out.splitlines() if line.split()[:1] == ["b"])
    assert row[1] == "silent"
    assert set(row[3:]) == {"-"}


def test_a_terminal_gets_no_command_of_a_ring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from msgspec.structs import replace

    from partc.cli import watch
    from partc.cli.status_feed import Line
    from partc.format.status import Change, RingStatus

    change = Change(epoch=1, age_s=0.0, cause="\x1b]0;owned\x07", stopped_s=0.0)
    ring = RingStatus(epoch=1, placement="p", devices=(), changes=(change,))
    line = Line(time="\x1b]0;owned\x07", planned_s={}, ring=ring)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with watch._shown(as_json=False) as show:
        show(line)
        show(replace(line, lost_s=1.0))
    assert "\x1b]" not in capsys.readouterr().out
