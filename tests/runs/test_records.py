"""Run records: written in one step, the newest kept, read back as they were, refused when they are not ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.errors import BundleError
from partc.runs.records import KEPT, read_record, record_files, write_record
from partc.runtime.client.results import Result, Timings

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = (
    "step",
    "started_s",
    "compute_s",
    "queue_s",
    "sent_bytes",
    "received_bytes",
    "epoch",
    "wait_s:board",
)
TABLE = np.array([[0, 10.5, 0.25, 0, 100, 8, 0, 0.5], [1, 11.5, 0.125, 0, 50, 8, 1, 0.25]])


def result() -> Result:
    timings = {"phone": Timings(COLUMNS, TABLE)}
    return Result([[1, 2], [3]], [[4, 5, 6], [7]], [], ["stop", "stop"], {}, 1.5, timings, [])


def write(build: Path, when: datetime = WHEN) -> Path:
    return write_record(build, "ab" * 32, [result()], when, local=True)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert file == tmp_path / "runs" / "20260131T120000-0.json"
    record = read_record(file)
    assert (record.plan_id, record.started, record.local) == ("ab" * 32, "2026-01-31T12:00:00Z", True)
    (request,) = record.requests
    assert (request.prompt_tokens, request.new_tokens, request.batch, request.elapsed_s) == (2, 3, 2, 1.5)
    assert request.timings["phone"].columns == COLUMNS
    np.testing.assert_array_equal(request.timings["phone"].table, TABLE)


def test_guessed_tokens_are_counted_where_there_were_any(tmp_path: Path) -> None:
    guessed = replace(result(), prompts=[[1]], tokens=[[4, 5, 6, 7]], drafted=5, accepted=2)
    file = write_record(tmp_path, "ab" * 32, [guessed, result()], WHEN, local=True)
    first, second = read_record(file).requests
    assert (first.drafted, first.accepted, first.guesses.share) == (5, 2, 0.5)
    assert first.guesses.rows_per_token == 1 + 3 / 4
    assert second.guesses.guessed == 0
    assert "drafted" not in json.loads(file.read_text())["requests"][1]


def test_runs_of_one_second_do_not_replace_each_other(tmp_path: Path) -> None:
    names = [write(tmp_path).name for _ in range(11)]
    assert names[-1] == "20260131T120000-10.json"
    assert [path.name for path in record_files(tmp_path)] == names[::-1]


def test_the_newest_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    others = [runs / "origin.json", runs / "notes.txt", runs / "20250101T000000.json"]
    for path in others:
        path.write_text("{}")
    files = [write(tmp_path, WHEN + timedelta(minutes=minute)) for minute in range(KEPT + 5)]
    assert record_files(tmp_path) == files[: -KEPT - 1 : -1]
    assert sorted(runs.iterdir()) == sorted([*others, *files[5:]])


def test_a_record_that_is_being_written_is_not_seen(tmp_path: Path) -> None:
    file = write(tmp_path)
    (tmp_path / "runs" / "20260131T120001-0.json").touch()
    assert record_files(tmp_path) == [file]


def test_nothing_stays_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def _drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name) and None


@pytest.mark.parametrize(
    "change",
    [
        *(_drop(name) for name in ("plan_id", "started", "local", "requests")),
        lambda data: data["requests"][0].pop("timings"),
        lambda data: data["requests"][0].update(timings=[1]),
        lambda data: data["requests"][0]["timings"]["phone"]["table"][0].pop(),
        lambda data: data["requests"][0]["timings"]["phone"]["table"][0].__setitem__(1, float("nan")),
        lambda data: data["requests"][0]["timings"]["phone"].update(columns=[]),
        lambda data: data["requests"][0]["timings"]["phone"]["columns"].reverse(),
        lambda data: data["requests"][0]["timings"]["phone"]["columns"].__setitem__(7, "wait_s"),
        lambda data: data["requests"][0]["timings"]["phone"]["table"][0].__setitem__(2, -0.25),
        lambda data: data["requests"][0]["timings"]["phone"]["table"][0].__setitem__(2, "x"),
        lambda data: data["requests"][0]["timings"]["phone"]["table"][0].__setitem__(0, 0.5),
        lambda data: data["requests"][0]["timings"]["phone"]["table"].reverse(),
        lambda data: data["requests"][0].update(timings={}),
        *(
            lambda data, name=name, value=value: data["requests"][0].update({name: value})
            for name in ("prompt_tokens", "new_tokens", "batch")
            for value in (-1, 1e308, 1.5, None, 10**400)
        ),
        *(
            lambda data, value=value: data["requests"][0].update(elapsed_s=value)
            for value in (float("nan"), -1, "x", None)
        ),
        lambda data: data["requests"][0].update(drafted=1, accepted=2),
        lambda data: data["requests"][0].update(drafted="x"),
        lambda data: data.update(requests=[]),
        lambda data: data.update(requests=[None]),
        lambda data: data.update(started="yesterday"),
        lambda data: data.update(local="yes"),
    ],
)
def test_damaged_records(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = write(tmp_path)
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    with pytest.raises(BundleError, match=r"damaged run record|not valid JSON") as caught:
        read_record(file)
    assert str(caught.value.where).startswith(str(file))
    assert "partc run" in str(caught.value.hint)
    assert "Error(" not in caught.value.message, "words, no Python"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "partc-plan/1"}', "\x00", "[" * 100_000])
def test_what_is_no_record(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(BundleError, match=r"not a run record|not valid JSON|nested too deeply"):
        read_record(file)


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="this is a folder, not a file"):
        read_record(tmp_path)
    with pytest.raises(BundleError, match="no such file"):
        read_record(tmp_path / "x.json")
