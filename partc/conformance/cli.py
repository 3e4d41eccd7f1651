"""The command line of the conformance kit."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from partc.conformance.bench import Bench
from partc.conformance.findings import Finding, findings_of
from partc.conformance.table import CHECKS
from partc.format.names import device_folders
from partc.runtime.client.runners import PYTHON_RUNNER

_GIVEN = "given"
"""The check that has something to do where `--build` names builds."""
_EPILOG = """\
example: python -m partc.conformance -- ./my-runner
         python -m partc.conformance --only values --build home -- ./my-runner -v
exit codes: 0 the runner conforms, 1 it does not, 2 wrong command line"""


def main(words: Sequence[str] | None = None) -> int:
    """Check a runner; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m partc.conformance",
        description="Tell whether a runner speaks partc's formats and wire (docs/conformance.md).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", metavar="COMMAND", nargs="*", help="what starts the runner, without options"
    )
    parser.add_argument(
        "--only",
        metavar="CHECK",
        action="append",
        default=[],
        help="CHECK or CHECK/PLACE; may be given again",
    )
    parser.add_argument(
        "--build",
        metavar="DIR",
        action="append",
        default=[],
        type=Path,
        help="a build of your own to run as well",
    )
    parser.add_argument(
        "--others", metavar="COMMAND", help="what runs the other devices; default: the runner in Python"
    )
    parser.add_argument("--list", action="store_true", help="print the checks, and make none")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given, others_of = parser.parse_known_args(words)
    if others_of:
        parser.error(f"{others_of[0]} is no option of the kit; what is the runner's stands behind `--`")
    if given.list:
        _list(as_json=given.json)
        return 0
    if not given.command:
        parser.error("what starts the runner? `-- COMMAND`")
    for program in (given.command[0], *shlex.split(given.others or "")[:1]):
        if shutil.which(program) is None:
            parser.error(f"there is no program {program!r} that can be started")
    for folder in given.build:
        if not device_folders(folder):
            parser.error(f"--build {folder}: there is no build, as `partc compile -o DIR` writes it")
    if not given.build and any(name.partition("/")[0] == _GIVEN for name in given.only):
        parser.error(f"--only {_GIVEN} is about builds of yours: add --build DIR")
    known = {check.name for check in CHECKS} | {
        f"{each.name}/{place}" for each in CHECKS for place in each.places
    }
    if unknown := sorted(set(given.only) - known):
        parser.error(f"there is no check {unknown[0]!r}; --list prints those there are")
    others = tuple(shlex.split(given.others)) if given.others else PYTHON_RUNNER
    builds = {path.name or str(path): path for path in given.build}
    findings = []
    with Bench(tuple(given.command), others, builds) as bench:
        for finding in findings_of([c for c in CHECKS if builds or c.name != _GIVEN], bench, given.only):
            findings.append(finding)
            if not given.json:
                _print(finding)
    wrong = [finding for finding in findings if finding.difference is not None]
    if given.json:
        print(json.dumps({"conforms": not wrong, "findings": [asdict(each) for each in findings]}, indent=1))
    else:
        print(f"{len(findings) - len(wrong)} of {len(findings)} checks hold")
    return 1 if wrong else 0


def _list(*, as_json: bool) -> None:
    """The checks, with the places in which each is made."""
    if as_json:
        known = [
            {"check": c.name, "places": c.places, "about": c.about, "section": c.section} for c in CHECKS
        ]
        print(json.dumps(known, indent=1))
        return
    for check in CHECKS:
        print(f"{check.name:13} {check.about}\n{'':13} at {', '.join(check.places)}; docs/{check.section}")


def _print(finding: Finding) -> None:
    """A line of a check; and how the runner differs, with where the manual speaks of it."""
    word = "holds" if finding.difference is None else "DIFFERS"
    print(f"{word:7} {finding.name:20} {finding.seconds:5.1f} s  {finding.about}", flush=True)
    if finding.difference is not None:
        print(*(f"        {line}" for line in finding.difference.splitlines()), sep="\n")
        print(f"        see docs/{finding.section}", flush=True, file=sys.stdout)
