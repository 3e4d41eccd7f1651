"""`partc` among other programs: pipes, closed pipes, signals, terminals."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from partc.cli.main import run

_IR = """partc-ir 1
model {"dims": {"batch": 2}, "name": "t", "task": "graph"}
graph t opset 24 {
  input %x: f32[batch, 4]
  %a: ?[?] = Identity(%x)
  %y: ?[?] = Relu(%a)
  output %y
}
"""
_PARTC = [sys.executable, "-m", "partc.cli"]
ROOT = Path(__file__).resolve().parents[2]


def _start(*arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    # Unbuffered, Python itself loses what a closed pipe did not take, and says nothing.
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [*_PARTC, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=surroundings
    )


def test_passes_read_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(_IR))
    assert run(["opt", "-", "-p", "canonicalize,infer-sizes"]) == 0
    shown = capsys.readouterr()
    assert "%y: f32[batch, 4] = Relu(%x)" in shown.out
    assert shown.err == ""


def test_what_a_pass_prints_another_reads() -> None:
    first, second = _start("opt", "-p", "canonicalize"), _start("opt", "-p", "infer-sizes")
    printed, _ = first.communicate(_IR)
    result, errors = second.communicate(printed)
    assert (first.returncode, second.returncode, errors) == (0, 0, "")
    assert "%y: f32[batch, 4] = Relu(%x)" in result


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    file = tmp_path / "large.partc"
    file.write_text(
        'partc-ir 1\nmodel {"name": "t", "task": "graph"}\ngraph t opset 24 {\n'
        f'  const %large = u8[6000000] base64"{"A" * 8000000}"\n'
        "  %y: u8[6000000] = Identity(%large)\n  output %y\n}\n"
    )
    process = _start("opt", str(file), "-p", "")
    assert process.stdin
    process.stdin.close()
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert errors == ""


def test_no_terminal_no_colours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.partc").write_text(_IR)
    assert run(["opt", str(tmp_path / "t.partc"), "-p", "canonicalize", "--timing"]) == 0
    errors = capsys.readouterr().err
    assert "canonicalize" in errors
    assert "\x1b" not in errors
    assert max(map(len, errors.splitlines())) <= 80


def test_a_full_disk_behind_standard_output_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*_PARTC, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "No space left on device\n  where: standard output\n" in done.stderr
