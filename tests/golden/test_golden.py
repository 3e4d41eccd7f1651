"""Every file in golden/ is a case; adding a test is adding a file."""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from partc.pipeline.registry import PASSES, load_pass, target_fusions
from tests.golden.case import Case, Outcome, parse_case, print_case
from tests.golden.shell import ROOT, run_case

GOLDEN = ROOT / "golden"
TRACES = GOLDEN / "protocol"
"""Traces of the runner's core have a form of their own."""
_HINT = "run `pytest tests/golden --update-golden`, then read the change"


def _paths() -> list[Path]:
    return sorted(path for path in GOLDEN.rglob("*.md") if TRACES not in path.parents)


def _parameters() -> list[ParameterSet]:
    found = []
    for path in _paths():
        case = parse_case(path.read_text(encoding="utf-8"))
        marks = [getattr(pytest.mark, name) for name in case.markers]
        found.append(pytest.param(path, case, marks=marks, id=str(path.relative_to(GOLDEN).with_suffix(""))))
    return found


@pytest.mark.parametrize(("path", "case"), _parameters())
def test_case(
    path: Path, case: Case, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    outcome = run_case(case, tmp_path, path.parent)
    assert outcome.exit != 70, f"a bug in partc:\n{outcome.stderr}"
    if request.config.getoption("--update-golden"):
        path.write_text(print_case(case.with_outcome(outcome)), encoding="utf-8")
        return
    if not case.has_expectation:
        pytest.fail(f"{path.name} expects nothing yet: {_HINT}", pytrace=False)
    if difference := _difference(case, outcome):
        pytest.fail(f"{difference}\nIf the new output is right: {_HINT}.", pytrace=False)


def _difference(case: Case, outcome: Outcome) -> str:
    lines: list[str] = []
    for kind in case.streams:
        expected, actual = case.expected(kind).splitlines(), outcome.text(kind).splitlines()
        lines += difflib.unified_diff(expected, actual, f"expected {kind}", f"actual {kind}", lineterm="")
    return "\n".join(lines)


def test_no_orphans() -> None:
    strays = [
        str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file() and path.suffix != ".md"
    ]
    assert not strays, f"no golden case uses these files: {strays}"


@pytest.mark.parametrize(("path", "case"), _parameters())
def test_every_case_begins_with_its_point(path: Path, case: Case) -> None:
    assert case.prose, f"{path.name}: the first line says what the case is about"


@pytest.mark.parametrize(("path", "case"), _parameters())
def test_every_input_file_is_used(path: Path, case: Case) -> None:
    assert not case.unused_files(), f"{path.name}: no command uses {case.unused_files()}"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_cases_of_its_own(name: str) -> None:
    """Text in, one pass, text out: a change of one pass changes the cases in its folder and no others."""
    commands = [line for path in (GOLDEN / "passes" / name).glob("*.md") for line in _commands(path)]
    assert commands
    for command in commands:
        words = shlex.split(command)
        if words[0] == "partc":
            assert words[1] == "opt"
            assert words[words.index("-p") + 1].partition("{")[0] == name


def test_every_fusion_of_a_target_has_a_case_before_and_after() -> None:
    """Two commands: the fusion is turned off in the first, and on in the second."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (GOLDEN / "fusions").glob("*.md")}
    cases = {stem.replace("_", "-"): parse_case(text) for stem, text in texts.items()}
    assert cases.keys() == set(target_fusions())
    for name, case in cases.items():
        assert not case.expected("stderr")
        off = [set(_disabled(command)) for command in case.commands]
        assert [name in names for names in off] == [True, False]
        assert off[0] - off[1] == {name}


def _disabled(command: str) -> list[str]:
    return command.partition("disable=")[2].partition("}")[0].split(";")


@pytest.mark.ort
@pytest.mark.parametrize("name", PASSES)
def test_a_changed_pass_fails_its_own_cases_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that does nothing any more is found by cases in its folder, and by no others."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(type(load_pass(name)), "apply", lambda step, module, context: False)
    paths = [path for path in _paths() if any(name in line for line in _commands(path))]
    failing = {path.parent for path in paths if _fails(path, tmp_path / path.parent.name / path.stem)}
    assert failing
    assert failing - ({GOLDEN / "fusions"} if name == "lower-target" else set()) == {GOLDEN / "passes" / name}


def _fails(path: Path, folder: Path) -> bool:
    folder.mkdir(parents=True)
    case = parse_case(path.read_text(encoding="utf-8"))
    return bool(_difference(case, run_case(case, folder, path.parent)))


def _commands(path: Path) -> list[str]:
    return parse_case(path.read_text(encoding="utf-8")).commands
