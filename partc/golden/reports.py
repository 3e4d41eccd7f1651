"""Outcomes as text for people, Markdown for a review, JUnit for a test report, annotations for GitHub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from partc.differences.change import Change
from partc.golden.checking import Outcome
from partc.golden.config import GOLDEN_FILE

MOST = 40
"""Changes of a case that are told to people; files have all."""


def text(outcomes: Sequence[Outcome], where: str) -> str:
    """A line a change, beneath those that share their causes."""
    return "\n".join(line for outcome in outcomes for line in _text(outcome, where))


def _text(outcome: Outcome, where: str) -> Iterator[str]:
    accepted = f", {len(outcome.accepted)} accepted" if outcome.accepted else ""
    if outcome.equal:
        yield f"{outcome.case}: as it was{accepted}"
        return
    if outcome.error:
        yield f"{outcome.case}: error: {outcome.error}"
        return
    yield f"{outcome.case}: {_count(outcome.changes)}{accepted}"
    yield from change_lines(outcome.changes)
    yield f"  where that is right: partc golden update {where} --case {outcome.case}"


def change_lines(changes: Sequence[Change], indent: str = "  ") -> Iterator[str]:
    """The changes by part, each part with what did it."""
    for part, mine in _parts(changes):
        yield f"{indent}{part}"
        yield from (f"{indent}  {change.text}" for change in mine[:MOST])
        if len(mine) > MOST:
            yield f"{indent}  … and {len(mine) - MOST} more; --json has all"
        for cause in mine[0].causes:
            yield f"{indent}  due to {cause}"


def markdown(outcomes: Sequence[Outcome], where: str) -> str:
    """A section a case, with a table."""
    lines = []
    for outcome in outcomes:
        title = "error" if outcome.error else _count(outcome.changes) if outcome.changes else "as it was"
        lines += [f"### {outcome.case}: {title}", ""]
        lines += [outcome.error, ""] if outcome.error else []
        if outcome.changes:
            lines += ["| part | change | before | after |", "| --- | --- | --- | --- |"]
            lines += [_row(change) for change in outcome.changes]
            lines += ["", "Due to:", ""]
            lines += [f"- {_cell(cause)}" for cause in _causes(outcome.changes)]
            lines += ["", f"Where that is right: `partc golden update {where} --case {outcome.case}`", ""]
    return "\n".join(lines)


def junit(outcomes: Sequence[Outcome], where: str) -> str:
    """A test case a case."""
    errors = sum(bool(outcome.error) for outcome in outcomes)
    failures = sum(not outcome.equal for outcome in outcomes) - errors
    suite = ElementTree.Element(
        "testsuite",
        name="partc golden",
        tests=str(len(outcomes)),
        failures=str(failures),
        errors=str(errors),
    )
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=where, name=outcome.case, time=f"{outcome.seconds:.2f}"
        )
        if outcome.error:
            ElementTree.SubElement(case, "error", message=outcome.error)
        elif not outcome.equal:
            failure = ElementTree.SubElement(case, "failure", message=_count(outcome.changes))
            failure.text = "\n".join(change_lines(outcome.changes, ""))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def github(outcomes: Sequence[Outcome], where: str) -> str:
    """An annotation a change; GitHub shows it beside the file of the record."""
    lines = []
    for outcome in outcomes:
        if outcome.error:
            title = _escaped(outcome.case, ":,")
            lines.append(
                f"::error file={_escaped(where, ':,')}/{GOLDEN_FILE},title={title}::{_escaped(outcome.error)}"
            )
        for change in outcome.changes:
            file = _file(Path(where) / outcome.case, change.part)
            what = f"{change.text}; due to {', '.join(change.causes)}"
            lines.append(
                f"::error file={_escaped(file, ':,')},title={_escaped(outcome.case, ':,')}::{_escaped(what)}"
            )
        if outcome.equal:
            lines.append(f"::notice title={_escaped(outcome.case, ':,')}::as it was")
    return "\n".join(lines)


FORMATS: dict[str, Callable[[Sequence[Outcome], str], str]] = {
    "text": text,
    "markdown": markdown,
    "junit": junit,
    "github": github,
}
"""Name of `--format` → (outcomes, the folder of golden.yaml) → text."""


def _file(folder: Path, part: str) -> str:
    """The file of a record that has a part; of several graphs the first."""
    found = sorted(folder.glob(f"{part}.*"))
    return str(found[0] if found else folder)


def _parts(changes: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    for part in dict.fromkeys(change.part for change in changes):
        yield part, [change for change in changes if change.part == part]


def _causes(changes: Sequence[Change]) -> list[str]:
    return list(dict.fromkeys(cause for change in changes for cause in change.causes))


def _count(changes: Sequence[Change]) -> str:
    return "1 change" if len(changes) == 1 else f"{len(changes)} changes"


def _row(change: Change) -> str:
    times = f" (×{change.count})" if change.count > 1 else ""
    cells = (change.part, f"{change.kind}: {change.subject}{times}", change.before or "", change.after or "")
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _escaped(value: str, further: str = "") -> str:
    """As GitHub's workflow commands want it."""
    for character in f"%\r\n{further}":
        value = value.replace(character, f"%{ord(character):02X}")
    return value
