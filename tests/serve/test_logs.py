"""The log of a server and of the runners that it starts, and metrics of its devices."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from partc.format.logs import BY_NAME, SERVER
from partc.format.status import Change, DeviceStatus, RingStatus
from partc.runtime.shell.log import LogSettings, LogWriter
from partc.serve.request_log import outcome_of
from partc.serve.ring_log import RingLog
from tests.serve.server import MODEL, serving

PROMPT = "abcabcdabcde"


@pytest.mark.serve
def test_a_server_tells_what_happens(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(build, "--log-format", "json", "--runner", "python") as server:
        assert server.complete(prompt=PROMPT, max_tokens=4)[0] == 200
        assert server.post("/v1/completions", {"model": MODEL, "prompt": PROMPT, "stream": True})[0] == 200
        assert server.post("/v1/completions", {"model": "other", "prompt": PROMPT})[0] == 404
        assert server.get("/health")[0] == 200
        metrics = devices_of(server)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert PROMPT not in json.dumps(lines), "no prompt is ever in a log"
    found = {(line["device"], line["event"]) for line in lines}
    assert {(SERVER, "listening"), (SERVER, "ring-ready"), (SERVER, "cannot"), (SERVER, "stopping"),
            ("a", "complete"), ("a", "request-ended"), ("b", "linked")} <= found  # fmt: skip
    answered = [line for line in lines if line["event"] == "answered"]
    assert [(line["outcome"], line["status"]) for line in answered] == [
        ("ok", 200),
        ("ok", 200),
        ("refused", 404),
    ]
    assert all(tuple(line)[4:] == BY_NAME[line["event"]].fields for line in lines)
    (ring,) = {line["ring"] for line in lines if "ring" in line}
    assert {f'partc_device_present{{ring="{ring}",device="{name}"}} 1' for name in "abc"} <= set(metrics)


def devices_of(server: Any) -> list[str]:
    """The lines of /metrics, once the devices are among them; the server watches its rings by itself."""
    lines: list[str] = []
    end = time.monotonic() + 30.0
    while not any(line.startswith("partc_device_present{") for line in lines) and time.monotonic() < end:
        time.sleep(0.1)
        lines = server.get("/metrics")[1].splitlines()
    return lines


def status(*present: str, epoch: int = 0) -> RingStatus:
    devices = tuple(DeviceStatus(device=name, is_present=name in present) for name in ("a", "b"))
    changes = tuple(Change(epoch=one, age_s=0, cause="lost b", stopped_s=0.5) for one in range(1, epoch + 1))
    return RingStatus(epoch=epoch, placement="p", devices=devices, changes=changes)


def told(log: RingLog, capsys: pytest.CaptureFixture[str], *statuses: RingStatus) -> list[tuple[str, str]]:
    for each in statuses:
        log.told("home", each)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [(line["event"], str(line.get("peer", line.get("epoch")))) for line in lines]


def test_what_is_new_of_a_ring_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = RingLog(LogWriter(SERVER, LogSettings("info", "json")))
    assert told(log, capsys, status("a", "b"), status("a", "b")) == []
    assert told(log, capsys, status("a", epoch=1)) == [("device-lost", "b"), ("changed", "1")]
    assert told(log, capsys, status("a", epoch=1), status("a", "b", epoch=2)) == [
        ("device-back", "b"), ("changed", "2"),
    ]  # fmt: skip


def test_a_ring_that_was_told_to_end_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = RingLog(LogWriter(SERVER, LogSettings("info", "json")))
    log.is_in("home", "ended", "")
    assert capsys.readouterr().err == ""
    log.is_in("home", "ended", "no more")
    assert json.loads(capsys.readouterr().err)["event"] == "ring-ended"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(200, "ok"), (404, "refused"), (429, "refused"), (499, "cancelled"), (0, "cancelled"), (503, "failed")],
)
def test_outcomes(code: int, outcome: str) -> None:
    assert outcome_of(code) == outcome
