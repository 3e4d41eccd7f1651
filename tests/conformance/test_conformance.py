"""The conformance kit: both of our runners pass it, and each of many faults is found by the check that is for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from partc.conformance.bench import Bench
from partc.conformance.cli import main
from partc.conformance.findings import Finding, findings_of
from partc.conformance.table import CHECKS
from partc.runtime.client.runners import PYTHON_RUNNER
from tests.conformance.faulty import FAULTS
from tests.native.compiled import native_runner
from tests.test_docs import ROOT, _anchors

RUNNERS = [pytest.param("python", marks=pytest.mark.slow), pytest.param("native", marks=pytest.mark.native)]


def findings(
    command: Sequence[str], only: Sequence[str] = (), others: Sequence[str] = PYTHON_RUNNER
) -> list[Finding]:
    with Bench(command, others) as bench:
        return list(findings_of(CHECKS, bench, only))


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("kind", RUNNERS)
def test_our_runners_conform(kind: str) -> None:
    command = PYTHON_RUNNER if kind == "python" else (str(native_runner()),)
    found = findings(command, others=command)
    assert [(each.name, each.difference) for each in found if each.difference is not None] == []
    assert len(found) == sum(len(check.places) for check in CHECKS)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    fault = FAULTS[name]
    (found,) = findings((sys.executable, "-m", "tests.conformance.faulty", name), [fault.check])
    assert found.difference is not None, f"{fault.check} holds"


def test_there_are_fifty_faults_and_each_is_for_a_check() -> None:
    known = {f"{check.name}/{place}" for check in CHECKS for place in check.places}
    assert len(FAULTS) >= 50
    assert {fault.check for fault in FAULTS.values()} <= known


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_names_a_title_of_the_manuals(check: object) -> None:
    file, _, title = check.section.partition("#")  # type: ignore[attr-defined]
    assert not title or title in _anchors(ROOT / "docs" / file)


def test_what_ends_at_once_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--only", "end", "--only", "values/last", "--", "false"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["conforms"] is False
    assert [each["difference"] is None for each in told["findings"]] == [False, False]


@pytest.mark.parametrize(("words", "reason"), [
    (["--", "./nosuch"], "no program './nosuch'"),
    (["--others", "./nosuch", "--", "false"], "no program './nosuch'"),
    (["--build", "nowhere", "--", "false"], "--build nowhere: there is no build"),
    (["--only", "given", "--", "false"], "add --build DIR"),
    (["--only", "end", "false", "--verbose"], "what is the runner's stands behind `--`"),
    (["--only", "options/last", "--", "false"], "--list prints those there are"),
])  # fmt: skip
def test_a_wrong_command_line_says_what_to_type(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


def test_the_list_says_where_checks_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "at source, middle, last; docs/bundle.md#programs" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["--list", "--json"]) == 0
    assert [each["check"] for each in json.loads(capsys.readouterr().out)] == [c.name for c in CHECKS]


def test_a_command_line_without_a_runner() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--only", "values"])
    assert caught.value.code == 2
    done = subprocess.run(
        [sys.executable, "-m", "partc.conformance", "--list"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("options ")
