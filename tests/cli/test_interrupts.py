"""Ctrl-C and SIGTERM at any moment of a real process: no traceback, and the exit code that shells expect."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from partc.runtime.shell.settings import stop_signals
from tests.families.check import devices_file
from tests.frontend.onnx_mutants import write_network
from tests.runtime.bundles import language_model

ROOT = Path(__file__).resolve().parents[2]
_START = "from partc import interrupts; interrupts.arm(); print(1, flush=True); "
_COMMAND = f"{_START}from partc.cli.__main__ import main; main()"
_DELAYS = [0.02 * step for step in range(30)] + [0.7, 0.9, 1.2, 1.6]


def _start(code: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that has taken over its signals."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        start_new_session=True,
        # Programs that were started in the background of a script ignore SIGINT, and so does what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_moment_of_a_command(number: int, code: int, part: int, tmp_path: Path) -> None:
    network, devices = write_network(tmp_path), devices_file(tmp_path, 2)
    (tmp_path / "model.yaml").write_text(f"model: {{onnx: {network}}}\ntask: graph\n")
    arguments = ("plan", "model.yaml", "--target", str(devices))
    ended = []
    for delay in _DELAYS[part::4]:
        process = _start(_COMMAND, tmp_path, *arguments)
        time.sleep(delay)
        os.killpg(process.pid, number)  # as a terminal does
        _, said = process.communicate(timeout=60)
        ended.append(process.returncode)
        assert process.returncode in (0, code), f"after {delay:.2f} s: {said}"
        assert process.returncode == 0 or said in ("", "interrupted\n"), f"after {delay:.2f} s: {said}"
    assert ended.count(code) >= 3


def test_an_alarm_of_somebody_else_ends_a_process(tmp_path: Path) -> None:
    process = _start(f"{_START}import time; time.sleep(60)", tmp_path)
    process.send_signal(signal.SIGALRM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + signal.SIGALRM, "")


def test_an_interrupt_at_any_moment_of_a_runner(tmp_path: Path) -> None:
    code = f"{_START}import sys; from partc.runtime.__main__ import main; sys.exit(main())"
    device = language_model("null").write(tmp_path / "build") / "devices" / "a"
    peers = [f"--peer={name}=127.0.0.1:9" for name in "bc"]
    arguments = (
        "--bundle",
        str(device),
        "--insecure",
        "--listen",
        "127.0.0.1:0",
        "--log-level",
        "none",
        *peers,
    )
    for delay in (*(0.02 * step for step in range(15)), 0.5, 1.0):
        process = _start(code, tmp_path, *arguments)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) in ((0, ""), (130, "interrupted\n")), f"after {delay:.2f} s: {said}"


_DEAF = f"""{_START}
import sys, time
from partc.runtime.shell.transport import Transport
def listen(transport, address):
    print("starting", flush=True)
    try:
        time.sleep(30)
    except BaseException:
        pass  # as C code may do that calls Python and does not look at errors
    return address
Transport.listen = listen
from partc.runtime.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_a_signal_ends_a_runner_that_starts(number: int, code: int, said: str, tmp_path: Path) -> None:
    """It has nothing to clean up, so no exception is raised, which could vanish, or leave a socket half made."""
    device = language_model("null").write(tmp_path / "build") / "devices" / "a"
    peers = [f"--peer={name}=127.0.0.1:9" for name in "bc"]
    process = _start(
        _DEAF, tmp_path, "--bundle", str(device), "--insecure", "--listen", "127.0.0.1:0", *peers
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("", said)
    assert process.returncode == code


def test_a_signal_while_the_loop_takes_over_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    install = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        before = install(number, handler)
        if number == signal.SIGINT and handler is not before and not asked:
            asked.append(number)
            signal.raise_signal(number)
        return before

    asked: list[int] = []
    monkeypatch.setattr(signal, "signal", interrupted)
    with stop_signals() as told:
        assert asked
        assert select.select([told], [], [], 0.0)[0]


_SLOW = """
import time
class Slow:
    def __set_name__(self, owner, name):
        print("importing", flush=True)
        for _ in range({steps}):
            time.sleep(0.01)
class Whole:
    slow = Slow()
"""
_IMPORT = f"""{_START}
import sys, time
interrupts.begin()
try:
    import slow
    time.sleep(30)
except BaseException as error:
    print(type(error).__name__, hasattr(slow, "Whole"), flush=True)
    interrupts.leave(interrupts.exit_code())
"""


def test_an_interrupt_waits_for_an_import(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(_SLOW.format(steps=30))
    process = _start(_IMPORT, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("KeyboardInterrupt True\n", "")
    assert process.returncode == 130


@pytest.mark.parametrize("times", [1, 2])
def test_a_long_import_is_not_waited_for(times: int, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(_SLOW.format(steps=3000))
    process = _start(_IMPORT, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.communicate(timeout=20) == ("", "interrupted\n")
    assert process.returncode == 130
    assert time.monotonic() - began < 20


_SCRATCH = f"""{_START}
from partc.scratch import scratch_folder, scratch_for_life
interrupts.begin()
scratch_for_life("life")
with scratch_folder("block"):
    import slow
"""


def test_an_end_in_a_long_import_leaves_no_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(_SLOW.format(steps=3000))
    there = tmp_path / "temporary"
    there.mkdir()
    monkeypatch.setenv("TMPDIR", str(there))
    process = _start(_SCRATCH, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    assert len(list(there.iterdir())) == 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert (process.returncode, list(there.iterdir())) == (130, [])


_DESTRUCTOR = f"""{_START}
import time
interrupts.begin()
class Odd:
    def __del__(self):
        print("deleting", flush=True)
        time.sleep(0.3)
try:
    Odd()
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    interrupts.leave(interrupts.exit_code())
"""


def test_an_interrupt_in_a_destructor_is_not_lost(tmp_path: Path) -> None:
    process = _start(_DESTRUCTOR, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "deleting\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("interrupted\n", "")
    assert process.returncode == 130


def test_an_interrupt_that_became_another_error_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from partc.cli.main import exit_code

    monkeypatch.setattr("partc.interrupts._asked", [signal.SIGINT])
    assert exit_code(RuntimeError("Error calling __set_name__ on 'x'")) == 130
    assert capsys.readouterr().err == "interrupted\n"
