"""The exit code of every outcome of a command."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest

from partc import cli
from partc.cli.main import COMMANDS, exit_code, partc, run
from partc.errors import (
    BundleError,
    Cause,
    ConfigError,
    InternalError,
    ModelError,
    PartcError,
    PlanError,
    RunError,
    UserError,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", [UserError, ConfigError, ModelError, PlanError, BundleError, RunError])
def test_the_users_mistake_is_1(kind: type[PartcError], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(kind("it is wrong", where="a.yaml:3", hint="mend it")) == 1
    assert capsys.readouterr().err == "error: it is wrong\n  where: a.yaml:3\n  hint: mend it\n"


@pytest.mark.parametrize("cause", get_args(Cause))
def test_what_a_failed_request_means_to_the_shell(cause: Cause) -> None:
    error = RunError("it failed", cause=cause)
    assert exit_code(error) == error.exit_code == (70 if cause == "bug" else 1)
    assert not isinstance(error, UserError)


def test_a_mistake_without_place_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(UserError("it is wrong")) == 1
    assert capsys.readouterr().err == "error: it is wrong\n"


@pytest.mark.parametrize("error", [InternalError("broken"), ValueError("broken"), AssertionError()])
def test_a_bug_is_70_with_its_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(error) == 70
    text = capsys.readouterr().err
    assert type(error).__name__ in text
    assert text.count("this is a bug of partc") == 1


def test_a_bug_that_a_runner_told_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = "ValueError: broken\nerror: this is a bug of partc; please report it with the lines above"
    assert exit_code(InternalError(f"the runner of phone failed:\n{said}")) == 70
    assert capsys.readouterr().err.count("this is a bug") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (BrokenPipeError(), 141),
        (SystemExit(143), 143),
        (SystemExit(None), 0),
        (SystemExit("text"), 1),
        (click.exceptions.Exit(0), 0),
        (click.UsageError("no such option"), 2),
        (OSError(errno.ENOSPC, "No space left on device", "build/x"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (OSError(errno.EFBIG, "File too large", "build/x"), 1),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "nodir/x"), 1),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 70),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "file/x"), 1),
        (FileExistsError(errno.EEXIST, "File exists", "file"), 1),
        (OSError(errno.EIO, "Input/output error"), 70),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 1),
        (ModuleNotFoundError("No module named 'partc.x'", name="partc.x"), 70),
    ],
)
def test_everything_else(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_a_full_disk_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(OSError(errno.ENOSPC, "No space left on device", "build/x"))
    shown = capsys.readouterr().err
    assert shown.startswith("error: No space left on device\n  where: build/x\n  hint: make room")


def test_an_interrupt_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("partc.pipeline.registry.load_passes", interrupt)
    assert run(["opt", "-", "-p", "canonicalize"]) == 130


@pytest.mark.parametrize("name", partc.commands)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:" in text
    assert f"partc {name}" in text.split("Example:")[1]
    assert max(map(len, text.splitlines())) <= 80


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z]+)  +[A-Z]", text, re.MULTILINE)
    assert listed == list(COMMANDS) == list(partc.commands)
    assert {f"{name}.py" for name in COMMANDS} < {path.name for path in Path(cli.__file__).parent.iterdir()}


def test_help_imports_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "onnx", "onnxruntime", "networkx", "numpy", "rich", "zmq"]
    code = (
        f"import sys, partc.cli.main as m; m.run(['--help']); print([x for x in {heavy} if x in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_standard_output(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m partc.cli --version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_breaks_lines_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UserError("one two three " * 9, where="a.yaml:3: " + "x" * 90, hint="write this\nthen that")
    exit_code(error)
    assert [len(line) > 80 for line in capsys.readouterr().err.splitlines()] == [True, True, False, False]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    exit_code(error)
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert [line for line in lines if len(line) > 60] == ["    " + "x" * 90]
    assert lines[0].startswith("error: one two") and lines[-1] == "then that"
