"""Runs the command lines of a golden case in this process: much faster than a process for each."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from partc.cli.main import run
from tests.golden.case import Case, Outcome

ROOT = Path(__file__).resolve().parents[2]


def run_case(case: Case, folder: Path) -> Outcome:
    """Write the case's files into `folder`, run its commands there, and name paths neutrally."""
    for name, text in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    outcome = Outcome("", "", 0)
    for command in case.commands:
        if outcome.exit:
            break
        step = _pipeline(command.replace("{root}", str(ROOT)), folder)
        outcome = Outcome(outcome.stdout + step.stdout, outcome.stderr + step.stderr, step.exit)
    return case.filtered(
        Outcome(_neutral(outcome.stdout, folder), _neutral(outcome.stderr, folder), outcome.exit)
    )


def _neutral(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "<folder>").replace(str(ROOT), "<root>")
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def _pipeline(command: str, folder: Path) -> Outcome:
    """One line; as in a shell with pipefail, the exit code is the first that is not 0."""
    feed, errors, code = "", "", 0
    for words in _split(command):
        outcome = _execute(words, feed, folder)
        feed, errors, code = outcome.stdout, errors + outcome.stderr, code or outcome.exit
    return Outcome(feed, errors, code)


def _split(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word == "|":
            yield words
            words = []
        else:
            words.append(word)
    yield words


def _execute(words: Sequence[str], feed: str, folder: Path) -> Outcome:
    if words[0] == "cat":
        return _cat([folder / name for name in words[1:]])
    if words[0] != "partc":
        raise ValueError(f"a golden case runs partc or cat, not {words[0]}")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), _stdin(feed), chdir(folder):
        code = run(words[1:])
    return Outcome(out.getvalue(), err.getvalue(), code)


def _cat(files: Sequence[Path]) -> Outcome:
    missing = "".join(f"cat: {file}: no such file\n" for file in files if not file.is_file())
    return Outcome(
        "".join(file.read_text(encoding="utf-8") for file in files if file.is_file()), missing, bool(missing)
    )


@contextmanager
def _stdin(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before
