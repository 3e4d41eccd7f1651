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
from partc.runtime.cli import main as run_runner
from tests.golden.case import Case, CaseError, Outcome, parse_case
from tests.golden.views import substituted

ROOT = Path(__file__).resolve().parents[2]


def run_case(case: Case, folder: Path, beside: Path | None = None) -> Outcome:
    """Write the case's files into `folder`, run its commands there, and name paths neutrally.

    `beside` is the folder of the case itself: files `from` other cases are taken from there.
    """
    for name, text in input_files(case, beside).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    outcome = Outcome("", "", 0)
    for command in case.commands:
        if outcome.exit:
            break
        step = _pipeline(command.replace("{root}", str(ROOT)), folder)
        outcome = Outcome(outcome.stdout + step.stdout, outcome.stderr + step.stderr, step.exit)
    neutral = Outcome(_neutral(outcome.stdout, folder), _neutral(outcome.stderr, folder), outcome.exit)
    return case.viewed(neutral, _base_file(case, folder))


def input_files(case: Case, beside: Path | None) -> dict[str, str]:
    """The input files of a case: name → text, those of other cases fetched and edited.

    Raises:
        CaseError: the other case has no such file, or an edit changes nothing.
    """
    return case.files | {
        name: _borrowed(name, origin, case.files[name].splitlines(), beside)
        for name, origin in case.origins.items()
    }


def _borrowed(name: str, origin: str, edits: Sequence[str], beside: Path | None) -> str:
    path = (beside or Path()) / f"{origin}.md"
    try:
        other = parse_case(path.read_text(encoding="utf-8"))
        return substituted(input_files(other, path.parent)[name], edits, must_match=True)
    except (KeyError, OSError, ValueError) as error:
        raise CaseError(f"{name} from {origin}: {error}") from error


def _base_file(case: Case, folder: Path) -> dict[str, str]:
    """The file that stdout is shown as a difference from, after the commands."""
    if case.base is None or not (folder / case.base).is_file():
        return {}
    return {case.base: _neutral((folder / case.base).read_text(encoding="utf-8"), folder)}


def _runner(arguments: Sequence[str]) -> int:
    try:
        return run_runner(arguments)
    except SystemExit as end:  # argparse: --help, or a command line that it does not understand
        return int(end.code or 0)


_PROGRAMS = {"partc": run, "partc-runner": _runner}


def _neutral(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "<folder>").replace(str(ROOT), "<root>")
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def _pipeline(command: str, folder: Path) -> Outcome:
    """One line; as in a shell with pipefail, the exit code is the first that is not 0."""
    feed, errors, code = "", "", 0
    for words in _split(command):
        program, _, file = (list(group) for group in _partition(words, ">"))
        outcome = _execute(program, feed, folder)
        feed, errors, code = outcome.stdout, errors + outcome.stderr, code or outcome.exit
        if file:
            (folder / file[0]).write_text(feed, encoding="utf-8")
            feed = ""
    return Outcome(feed, errors, code)


def _partition(words: Sequence[str], mark: str) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Like `str.partition`, for a list."""
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def _split(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>")
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
    if words[0] not in _PROGRAMS:
        raise ValueError(f"a golden case runs cat, {' or '.join(_PROGRAMS)}, not {words[0]}")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), _stdin(feed), chdir(folder):
        code = _PROGRAMS[words[0]](words[1:])
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
