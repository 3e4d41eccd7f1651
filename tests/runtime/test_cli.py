"""The command line of both runners."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from partc import __version__
from partc.runtime.cli import main
from tests.native.compiled import counts_memory
from tests.runtime.bundles import language_model
from tests.runtime.runners import Runners


def refused(
    runners: Runners, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and standard error of a runner that does not even begin; Python's is no process of its own."""
    if runners.native is not None:
        done = subprocess.run(
            [runners.native, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stderr
    try:
        code = main(arguments)
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        code = ended.code
    return code, capsys.readouterr().err


def test_help_is_quick_and_has_examples(runners: Runners) -> None:
    times = []
    for _ in range(3):
        before = os.times()
        command = [*runners.command("a"), "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = os.times()
        times.append(sum(after[2:4]) - sum(before[2:4]))
    assert "examples:" in done.stdout
    assert min(times) < 0.6, "0.3 s of processor time on a machine that does nothing else"


def test_version(runners: Runners) -> None:
    done = subprocess.run([*runners.command("a"), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["partc-runner", __version__]


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, partc.runtime.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert not {"numpy", "zmq", "msgpack", "onnxruntime"} & set(modules.split())


@counts_memory
def test_memory_of_a_runner_without_a_model(tmp_path: Path, runners: Runners) -> None:
    build = language_model("null").write(tmp_path / "build")
    command = [*runners.command("a"), "--bundle", str(build / "devices" / "a"), "--listen", "127.0.0.1:0"]
    command += ["--peer", "b=127.0.0.1:9", "--peer", "c=127.0.0.1:9"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline().startswith("a listens on 127.0.0.1:")
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert resident_kb < (80_000 if runners.native is None else 8_000)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bundle", "x", "--listen", "here"],
        ["--bundle", "x", "--peer", "b"],
        ["--bundle", "x", "--peer", "b=1.2.3.4:x"],
        ["--bundle", "x", "--patience", "0"],
        ["--bundle", "x", "--rejoin", "-1"],
        ["--bundle", "x", "--linger", "soon"],
        ["--bundle", "x", "--advertise", "here:"],
        ["--bundle", "x", "--frobnicate"],
    ],
)
def test_usage(arguments: list[str], runners: Runners, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = refused(runners, arguments, capsys)
    assert code == 2
    assert told.startswith("usage: partc-runner")
    assert "\npartc-runner: error: " in told


def test_wrong_input_is_exit_code_1(
    tmp_path: Path, runners: Runners, capsys: pytest.CaptureFixture[str]
) -> None:
    build = language_model("null").write(tmp_path / "build")
    bundle = ["--bundle", str(build / "devices" / "a")]
    cases = {
        ("--bundle", str(tmp_path)): "no bundle",
        (*bundle,): "where shall this device listen?",
        (*bundle, "--listen", "127.0.0.1:0"): "the address of b is not known",
        (*bundle, "--listen", "127.0.0.1:0", "--peer", "x=127.0.0.1:9"): "the build has no device 'x'",
        (*bundle, "--listen", "0.0.0.0:0", "--insecure"): "nothing may leave this machine",
        (*bundle, "--listen", "nowhere.invalid:1"): "cannot listen",
        (*bundle, *("--listen", "192.0.2.7:1")): "hint: give an address of this machine",
        (
            *(*bundle, "--listen", "127.0.0.1:0", "--insecure"),
            *("--peer", "b=192.0.2.7:1", "--peer", "c=127.0.0.1:1"),
        ): "192.0.2.7:1: without encryption",
    }
    for arguments, message in cases.items():
        code, error = refused(runners, (*arguments, "--log-level", "none"), capsys)
        assert code == 1
        assert error.startswith("error: ")
        assert message in error
        assert "\n  hint: " in error
        assert "Traceback" not in error


def test_a_bug_is_exit_code_70(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("partc.runtime.shell.runner.load_role", broken)
    assert main(["--bundle", str(tmp_path)]) == 70
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "this is a bug of partc" in error
