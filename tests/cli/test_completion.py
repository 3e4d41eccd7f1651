"""Command lines as shells complete them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manuals.blocks import ROOT


def _partc(*words: str, cwd: Path | None = None, **variables: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-P", "-m", "partc.cli", *words]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("partc pl", {"plan"}),
        ("partc golden ", {"check", "update"}),
        ("partc compile --str", {"--strategy"}),
        ("partc compile --strategy gal", {"galaxy"}),
        ("partc compile --strategy no-such", set()),
    ],
)
def test_words_are_completed(line: str, expected: set[str]) -> None:
    words = line.split(" ")
    told = _partc(_PARTC_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert {row.partition(",")[2] for row in told.splitlines() if row} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_such_as_their_shell_reads(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(_partc("completion", shell))
    assert "_PARTC_COMPLETE" in script.read_text()
    if (program := shutil.which(shell)) is not None:
        done = subprocess.run([program, "-n", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_bash_completes(tmp_path: Path) -> None:
    """A real shell calls the function of the script, which calls partc."""
    (tmp_path / "script").write_text(_partc("completion", "bash"))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "partc").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m partc.cli "$@"\n'
    )
    (programs / "partc").chmod(0o755)
    line = "COMP_WORDS=(partc ver); COMP_CWORD=1; _partc_completion partc ver partc"
    asked = f'source ./script; {line}; echo "${{COMPREPLY[@]}}"'
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", asked], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["verify"], done.stderr
