"""Lines of a log, in both runners, and what rings of real processes tell."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from partc.errors import InternalError
from partc.format.logs import BY_NAME, EVENTS, SERVER, Value
from partc.runtime.client.launch import launch_local
from partc.runtime.client.runners import PYTHON_RUNNER
from partc.runtime.shell.log import LONGEST_VALUE, LogSettings, LogWriter, json_line, text_line
from partc.runtime.shell.strangers import Strangers
from tests.native.compiled import native_runner
from tests.runtime.bundles import language_model

TIME = "2026-01-31T12:00:00.250Z"
LOST: dict[str, Value] = {"devices": "board"}
HEALED: dict[str, Value] = {"reason": "lost board", "seconds": 0.5917}


def test_a_line_for_people() -> None:
    line = text_line(BY_NAME["healed"], "laptop", HEALED, TIME)
    assert line == (
        f"{TIME} info healed laptop: the ring goes on (lost board); requests stood still for 0.592 s"
    )


def test_a_line_for_programs() -> None:
    line = json_line(BY_NAME["healed"], "laptop", HEALED, TIME)
    assert json.loads(line) == {
        "time": TIME, "level": "info", "event": "healed", "device": "laptop", "reason": "lost board",
        "seconds": 0.592,
    }  # fmt: skip


def test_texts_of_others_stay_on_one_line_and_tell_a_terminal_nothing() -> None:
    fields: dict[str, Value] = {"cause": "refused", "reason": "\x1b[2Ja\nb\u202ec\x9b" + "x" * 9999}
    for form in (text_line, json_line):
        line = form(BY_NAME["refused"], "laptop", fields, TIME)
        assert line.isprintable()
        assert r"\x1b[2Ja\x0ab\u202ec\x9bxx" in (line if form is text_line else json.loads(line)["reason"])
        assert len(line) < LONGEST_VALUE + 200


def test_other_fields_than_those_of_the_table_are_a_bug() -> None:
    with pytest.raises(InternalError, match="has the fields"):
        text_line(BY_NAME["lost"], "laptop", {"peer": "board"}, TIME)


@pytest.mark.parametrize(
    ("level", "written"), [("debug", True), ("warning", True), ("error", False), ("none", False)]
)
def test_levels(level: str, written: bool, capsys: pytest.CaptureFixture[str]) -> None:
    LogWriter("laptop", LogSettings(level)).write("lost", LOST)
    out, err = capsys.readouterr()
    assert (out, bool(err)) == ("", written)


def told(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def until(capfd: pytest.CaptureFixture[str], wanted: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """The lines, until each (device, event) is among them."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60.0
    while wanted - {(line["device"], line["event"]) for line in found} and time.monotonic() < end:
        time.sleep(0.1)
        found += told(capfd.readouterr().err)
    return found


def through_a_loss(
    command: Sequence[str], build: Path, capfd: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """The lines of a ring of such runners, of which one is killed and comes back."""
    runners = dict.fromkeys(("a", "b", "c"), command)
    log = LogSettings("debug", "json")
    with launch_local(build, runners=runners, log=log) as ring, ring.client() as client:
        client.generate([1, 2], 4, ignore_eos=True)
        os.kill(ring.pids["b"], signal.SIGKILL)
        found = until(capfd, {("a", "disconnected"), ("a", "back"), ("a", "healed")})
        client.generate([1, 2], 4, ignore_eos=True)
    time.sleep(0.1)
    return found + told(capfd.readouterr().err)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


def check(lines: list[dict[str, Any]]) -> None:
    by_event = {(line["device"], line["event"]): line for line in lines}
    assert {("a", "listening"), ("a", "complete"), ("b", "linked"), ("a", "joined"), ("a", "request-ended"),
            ("a", "disconnected"), ("a", "back"), ("a", "broken"), ("a", "healed"),
            ("c", "stopping")} <= by_event.keys()  # fmt: skip
    for line in lines:
        event = BY_NAME[line["event"]]
        assert tuple(line) == ("time", "level", "event", "device", *event.fields)
        assert line["level"] == event.level
    broken = [line["devices"] for line in lines if (line["device"], line["event"]) == ("a", "broken")]
    assert broken[0] == "b", "when all end, the source may find another one gone"
    assert by_event["a", "healed"]["reason"] == "all devices are back"
    assert by_event["a", "healed"]["seconds"] >= 0.0
    assert by_event["a", "request-ended"]["tokens"] == 4


def test_a_ring_tells_of_a_loss(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(through_a_loss(PYTHON_RUNNER, build, capfd))


@pytest.mark.native
def test_a_native_ring_tells_of_a_loss(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(through_a_loss((str(native_runner()),), build, capfd))


def check_strangers(command: Sequence[str], build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Garbage on the port of a ring of such runners is told of, and nothing else comes of it."""
    log = LogSettings("warning", "json")
    with launch_local(build, runners=dict.fromkeys(("a", "b", "c"), command), log=log) as ring:
        host, _, port = ring.addresses["a"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        lines = until(capfd, {("a", "strangers")})
        with ring.client() as client:
            client.generate([1], 2, ignore_eos=True)
    assert [(line["event"], line["connections"]) for line in lines] == [("strangers", 1)]


def test_the_log_tells_of_strangers(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_strangers(PYTHON_RUNNER, build, capfd)


@pytest.mark.native
def test_the_log_of_the_native_runner_tells_of_strangers(
    build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_strangers((str(native_runner()),), build, capfd)


def test_strangers_are_told_of_once_a_minute() -> None:
    strangers = Strangers()
    counts = ((0, 5.0), (3, 6.0), (3, 7.0), (9, 8.0), (9, 66.0), (9, 999.0))
    assert [strangers.to_tell(count, now) for count, now in counts] == [0, 3, 0, 0, 6, 0]
    assert strangers.due_s(9, 999.0) is None
    assert (strangers.due_s(10, 80.0), strangers.due_s(10, 999.0)) == (46.0, 0.0)


def test_a_ring_is_silent_where_no_log_is_wanted(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with launch_local(build) as ring, ring.client() as client:
        client.generate([1, 2], 2, ignore_eos=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("note: waiting")] == []


def lines_of(command: Sequence[str], *options: str) -> str:
    """The output of a runner that has no bundle."""
    words = [*command, "--bundle", "none", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.native
def test_a_runner_that_fails_tells_the_same_in_both_languages() -> None:
    native, python = (str(native_runner()),), (sys.executable, "-P", "-m", "partc.runtime")
    for command in (native, python):
        (line,) = told(lines_of(command, "--log-format", "json"))
        assert (line["event"], line["device"], line["exit_code"]) == ("failed", "none", 1)
        assert "--log-level" in lines_of(command, "--log-level", "loud")
        assert told(lines_of(command, "--log-format", "json", "--log-level", "none")) == []


def test_the_server_is_no_device() -> None:
    assert SERVER not in {event.name for event in EVENTS}
