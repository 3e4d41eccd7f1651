"""Limits and ends of a runner: open files, strangers, its last words, and one that is stopped."""

from __future__ import annotations

import errno
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from partc.errors import BundleError, InternalError, RunError
from partc.format.message_parts import Problem
from partc.runtime.cli import main
from partc.runtime.shell.last_words import read_last_words, say_last_words
from tests.runtime.bundles import language_model
from tests.runtime.patched import patched_runners
from tests.runtime.runners import Runners
from tests.runtime.test_cli import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


def _runner(runners: Runners, device: Path, before: str, *options: str) -> subprocess.CompletedProcess[str]:
    runner = " ".join(runners.command(device.name))
    command = f"{before}; exec {runner} --bundle {device} {' '.join(options)}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, input=""
    )


@pytest.mark.parametrize("most", [16, 24, 48])
def test_too_few_files_are_an_error_with_the_limit(most: int, build: Path, runners: Runners) -> None:
    done = _runner(
        runners, build / "devices" / "a", f"ulimit -n {most}", "--insecure", "--listen 127.0.0.1:0"
    )
    assert done.returncode == 1
    assert f"lets this process open {most} files, and a runner needs 64" in done.stderr
    assert "ulimit -n 1024" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_line_of_a_runner_is_for_programs(build: Path, runners: Runners) -> None:
    device = build / "devices" / "a"
    done = _runner(runners, device / "keys", "true", "--stdio")
    told = json.loads(done.stdout.splitlines()[-1])["error"]
    assert done.returncode == 1
    assert told["cause"] == "input"
    assert set(told) == {"cause", "message", "where", "hint"}
    assert told["message"] in done.stderr


@pytest.mark.in_turns(4)
def test_a_runner_that_is_stopped_while_it_loads_is_not_waited_for(
    build: Path,
    runners: Runners,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    env = patched_runners(tmp_path / "stopped", "os.kill(os.getpid(), 19)  # SIGSTOP", "b")
    for name, seconds in (("_FIRST_WORD_S", 0.5), ("_STOPPED_S", 2.0)):
        monkeypatch.setattr(f"partc.runtime.shell.process.{name}", seconds)
    began = time.monotonic()
    with pytest.raises(RunError, match="the runner of b is stopped") as caught:
        runners.patched("b").launch(build, env=env)
    assert time.monotonic() - began < 20
    assert caught.value.cause == "stalled"
    assert str(caught.value.hint).startswith("let it go on: kill -CONT ")
    assert "note: waiting for" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RunError("gone", where="b", hint="wait", cause="lost-peer"),
            Problem("lost-peer", "gone", "b", "wait"),
        ),
        (BundleError("damaged", where="x"), Problem("input", "damaged", "x")),
        (InternalError("broken"), Problem("bug", "broken")),
        (ValueError("odd"), Problem("bug", "ValueError: odd")),
    ],
)
def test_last_words_are_read_as_they_were_written(
    error: Exception, told: Problem, capsys: pytest.CaptureFixture[str]
) -> None:
    say_last_words(error)
    assert read_last_words(capsys.readouterr().out.encode()) == told


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"ready": true}', b"[" * 5000, b'{"error": {"cause": "bad"}}']
)
def test_other_lines_are_no_last_words(line: bytes) -> None:
    assert read_last_words(line) is None


def _deep(folder: Path) -> None:
    (folder / "keys" / "peers.json").write_text("[" * 100_000)


def _no_file(folder: Path) -> None:
    (folder / "keys" / "secret.key").unlink()
    (folder / "keys" / "secret.key").mkdir()


def _folder_for_build(folder: Path) -> None:
    (folder / "build.json").unlink()
    (folder / "build.json").mkdir()


def _huge_number(folder: Path) -> None:
    path = folder / "placement.json"
    path.write_text(path.read_text().replace('"epoch": 0', f'"epoch": {"9" * 5000}'))


@pytest.mark.parametrize("damage", [_deep, _no_file, _folder_for_build, _huge_number])
def test_a_damaged_folder_is_said(
    damage: Callable[[Path], None], build: Path, runners: Runners, capsys: pytest.CaptureFixture[str]
) -> None:
    device = build / "devices" / "a"
    damage(device)
    code, said = refused(runners, ["--bundle", str(device), "--listen", "127.0.0.1:0"], capsys)
    assert code == 1
    assert said.startswith(f"error: {device}")
    assert "  hint: " in said


def test_a_file_that_may_not_be_read(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "part_0.onnx")

    monkeypatch.setattr("partc.runtime.shell.runner.load_role", refuse)
    device = build / "devices" / "a"
    assert main(["--bundle", str(device), "--listen", "127.0.0.1:0"]) == 1
    assert capsys.readouterr().err.startswith("error: part_0.onnx: Permission denied\n  hint: ")
