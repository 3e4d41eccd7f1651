"""Numbers and texts on the command line of both runners: what one takes the other takes, and they say the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from partc.format.message_parts import Problem
from partc.runtime import cli
from partc.runtime.core.liveness import MOST_S
from partc.runtime.shell.last_words import read_last_words
from tests.native.compiled import native_runner

pytestmark = pytest.mark.native

SECONDS = (
    "5", "0.5", ".5", "5.", "1e3", "1E+3", "+5", "-0", "0", "1e6", "1000000.0",
    "1e7", "1000001", "1e300", "1e400", "-1", "-1e-9", "nan", "inf", "infinity", "-inf", "0x10", "1_000", " 5", "5 ",
    "", "5s", "1e", "e5", ".", "-", "٥", "\x1b[0m",
)  # fmt: skip
OPTIONS = ("--patience", "--rejoin", "--linger")


@pytest.fixture(scope="module")
def runner() -> Path:
    return native_runner()


def _python(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().err.strip().rpartition("\n")[2]


def _native(runner: Path, words: list[str]) -> tuple[int, str]:
    done = subprocess.run([runner, *words], capture_output=True, check=False, timeout=60)
    return done.returncode, done.stderr.decode().strip().rpartition("\n")[2]


@pytest.mark.parametrize("option", OPTIONS)
def test_seconds(option: str, runner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {1: 0, 2: 0}
    for text in SECONDS:
        words = ["--bundle", str(tmp_path / "absent"), f"{option}={text}"]
        expected, found = _python(words, capsys), _native(runner, words)
        assert found[0] == expected[0], f"{text!r}: {expected} {found}"
        if found[0] == 2:
            assert found[1] == expected[1]
        counts[found[0]] += 1
    assert counts[1] >= 8 and counts[2] >= 18


def test_a_time_that_no_clock_counts_is_refused_with_its_bound(runner: Path) -> None:
    code, said = _native(runner, ["--bundle", "x", "--patience", "1e7"])
    assert code == 2
    assert (
        said == f"partc-runner: error: argument --patience: '1e7' is too long: {MOST_S:.0f} seconds at most"
    )


def test_the_longest_patience_over_libzmq(runner: Path, tmp_path: Path) -> None:
    """Half of it in milliseconds is a number of 32 bits, which UBSan holds it to."""
    words = ["--bundle", str(tmp_path), "--patience", str(MOST_S)]
    done = subprocess.run(
        [runner, *words], capture_output=True, check=False, timeout=60, env={"PARTC_TRANSPORT": "zmq"}
    )
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "\x9b2J", "é" * 70, "'", "\"'", "\\"])
def test_names_are_shown_as_python_shows_them(
    name: str, runner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bundle", "x", "--listen", name]
    code, said = _native(runner, words)
    assert (code, said[:90]) == (2, _python(words, capsys)[1][:90])
    assert not {letter for letter in said if ord(letter) < 32 or 127 <= ord(letter) < 160}


def test_last_words_are_read_whatever_the_bytes_are() -> None:
    line = b'{"error": {"cause": "input", "message": "no kind is \'\xc3\'", "where": null, "hint": null}}'
    told = read_last_words(line)
    assert told == Problem("input", "no kind is '\ufffd'")
    assert read_last_words(b"\xff\xfe") is None


def test_a_placement_with_a_long_odd_format_ends_the_native_runner_in_words(
    runner: Path, tmp_path: Path
) -> None:
    (tmp_path / "build.json").write_text(json.dumps({"format": "x" + 64 * "\u0661"}))
    done = subprocess.run(
        [runner, "--bundle", tmp_path, "--stdio"], capture_output=True, check=False, timeout=60, input=b""
    )
    told = read_last_words(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert told is not None and "x\u0661\u0661" in told.message
    done.stdout.decode()
    done.stderr.decode()
