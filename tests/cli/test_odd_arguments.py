"""Arguments in odd bytes and odd locales, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _run(arguments: list[bytes], **surroundings: str) -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [sys.executable, "-m", "partc.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, check=False, cwd=ROOT, env={**os.environ, **surroundings}
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [b"run", b"build", b"--prompt", b"abc\xff"],
        [b"plan", b"m\xff.yaml", b"--target", b"devices.yaml"],
        [b"report", b"build\xff"],
    ],
)
def test_what_is_no_utf8_is_named(arguments: list[bytes]) -> None:
    done = _run(arguments)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(b"error: this argument is not UTF-8: byte ")
    assert rb"\xff" in done.stderr
    assert b"compile again" not in done.stderr


_PROMPT = "from partc.cli.requests import read_prompts; import sys; print(ascii(read_prompts(sys.argv[1:], [], False)))"


@pytest.mark.parametrize("surroundings", [{}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_prompt_is_utf8_in_every_locale(surroundings: dict[str, str]) -> None:
    command: list[str | bytes] = [sys.executable, "-c", _PROMPT, "größe 😀".encode()]
    done = subprocess.run(
        command, capture_output=True, check=True, cwd=ROOT, env={**os.environ, **surroundings}
    )
    assert done.stdout.decode().strip() == ascii(["größe 😀"])


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = (
        f'cat "{ROOT}/README.md" > "{pipe}" & "{sys.executable}" -m partc.cli opt "{pipe}" -p canonicalize'
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False, cwd=ROOT, timeout=60)
    assert b"this is not partc IR" in done.stderr
