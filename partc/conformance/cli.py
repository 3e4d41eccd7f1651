"""The command line of the conformance kit."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from partc.conformance.bench import Bench
from partc.conformance.findings import Finding, findings_of
from partc.conformance.table import CHECKS
from partc.runtime.client.runners import PYTHON_RUNNER

_EPILOG = """\
example: python -m partc.conformance -- ./my-runner
         python -m partc.conformance --only values --build home -- ./my-runner --verbose
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
    given = parser.parse_args(words)
    if given.list:
        print(*(f"{check.name:13} {check.about} ({check.section})" for check in CHECKS), sep="\n")
        return 0
    if not given.command:
        parser.error("what starts the runner? `-- COMMAND`")
    known = {check.name for check in CHECKS} | {
        f"{each.name}/{place}" for each in CHECKS for place in each.places
    }
    if unknown := sorted(set(given.only) - known):
        parser.error(f"there is no check {unknown[0]!r}; --list prints those there are")
    others = tuple(shlex.split(given.others)) if given.others else PYTHON_RUNNER
    builds = {path.name or str(path): path for path in given.build}
    findings = []
    with Bench(tuple(given.command), others, builds) as bench:
        for finding in findings_of(CHECKS, bench, given.only):
            findings.append(finding)
            if not given.json:
                _print(finding)
    wrong = [finding for finding in findings if finding.difference is not None]
    if given.json:
        print(json.dumps({"conforms": not wrong, "findings": [asdict(each) for each in findings]}, indent=1))
    else:
        print(f"{len(findings) - len(wrong)} of {len(findings)} checks hold")
    return 1 if wrong else 0


def _print(finding: Finding) -> None:
    """A line of a check; and how the runner differs, with where the manual speaks of it."""
    word = "holds" if finding.difference is None else "DIFFERS"
    print(f"{word:7} {finding.name:20} {finding.seconds:5.1f} s  {finding.about}", flush=True)
    if finding.difference is not None:
        print(*(f"        {line}" for line in finding.difference.splitlines()), sep="\n")
        print(f"        see docs/{finding.section}", flush=True, file=sys.stdout)
