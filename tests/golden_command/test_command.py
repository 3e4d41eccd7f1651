"""`partc golden` and `partc diff` as their users type them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from partc.golden.config import Case
from tests.golden_command.mutations import Reader
from tests.manuals.blocks import ROOT

pytestmark = pytest.mark.hf


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    made = Reader.of(tmp_path / "golden", "llama")
    made.case["keep"] = ["graph", "plan", "bundle", "tokens"]
    made.case["prompts"] = [[1, 2, 3], [4, 5]]
    made.case["tokens"] = 6
    made.write()
    return made


def _partc(reader: Reader, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "partc.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=reader.folder.parent, env=env, check=False
    )


def _good(reader: Reader, *words: str) -> str:
    done = _partc(reader, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.in_turns(2)
def test_a_case_that_cannot_be_made_keeps_no_other_away(reader: Reader) -> None:
    file = reader.folder / "golden.yaml"
    data = yaml.safe_load(file.read_text())
    kept = {**data["cases"]["tiny"], "keep": ["plan"]}
    data["cases"] = {"broken": {**kept, "model": "nowhere.yaml"}, "tiny": kept}
    file.write_text(json.dumps(data))
    done = _partc(reader, "golden", "update")
    assert done.returncode == 1
    assert "tiny: new, in golden/tiny" in done.stdout
    assert "nowhere.yaml" in done.stderr and "hint: " in done.stderr
    data["cases"]["other"] = {**kept, "model": "neither.yaml"}
    file.write_text(json.dumps(data))
    done = _partc(reader, "golden", "update", "--json")
    assert done.returncode == 1
    assert "2 cases were not written: broken: " in done.stderr
    assert [(one["case"], "refused" in one) for one in json.loads(done.stdout)] == [
        ("broken", True), ("tiny", False), ("other", True)
    ]  # fmt: skip


@pytest.mark.in_turns(6)
def test_a_record_is_written_read_and_told(reader: Reader) -> None:
    assert "tiny: new, in golden/tiny" in _good(reader, "golden", "update")
    record = reader.folder / "tiny"
    assert {path.name for path in record.iterdir()} == {
        "bundle.yaml", "graph.coarsen-submodules.partc", "made-by.yaml", "plan.yaml", "tokens.yaml",
    }  # fmt: skip
    before = {path.name: path.read_bytes() for path in record.iterdir()}
    assert str(reader.folder) not in b"".join(before.values()).decode()
    made_by = yaml.safe_load(before["made-by.yaml"])["settings"]["devices"]
    assert "keep" in made_by and "keep_place" not in made_by
    assert "tiny: as it was" in _good(reader, "golden", "check", "golden")

    reader.devices["devices"]["phone"]["memory"] = "230 kB"
    reader.write()
    done = _partc(reader, "golden", "check", "golden")
    assert done.returncode == 1, done.stderr
    assert "memory given: phone: 234000 B → 207000 B" in done.stdout
    assert "due to devices.devices.phone.memory_bytes: 260000 → 230000" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 200

    accepted = _good(reader, "golden", "check", "golden", "--accept", "plan/*", "--accept", "[bt]*/*")
    assert "tiny: as it was, " in accepted
    assert " accepted" in accepted

    told = json.loads(_good(reader, "golden", "update", "golden", "--json"))
    assert told[0]["new"] is False
    assert any(change["kind"] == "memory given" for change in told[0]["changes"])
    assert "as it was" in _good(reader, "golden", "check", "golden", "--case", "tiny")
    reader.devices["devices"]["phone"]["memory"] = "260 kB"
    reader.write()
    _good(reader, "golden", "update")
    assert {path.name: path.read_bytes() for path in record.iterdir()} == before


@pytest.mark.in_turns(3)
def test_forms(reader: Reader) -> None:
    reader.case["keep"] = ["graph", "plan"]
    reader.write()
    _good(reader, "golden", "update")
    reader.config["num_hidden_layers"] = 5
    reader.write()
    found = {
        form: _partc(reader, "golden", "check", "--format", form) for form in ("markdown", "junit", "github")
    }
    assert {done.returncode for done in found.values()} == {1}
    assert "| graph | operator added: MatMul in layer 4 · self_attn.q_proj |" in found["markdown"].stdout
    suite = ElementTree.fromstring(found["junit"].stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "due to model.config.num_hidden_layers: 4 → 5" in str(suite[0][0].text)
    lines = found["github"].stdout.splitlines()
    assert all(line.startswith("::error file=golden/tiny/") for line in lines)
    assert any("num_hidden_layers" in line for line in lines)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    ("case", "where", "said"),
    [
        ({"keep": ["graf"]}, "golden.yaml:", "found the text 'graf'"),
        ({"keep": ["tokens"], "prompts": []}, "golden.yaml:", "there is nothing to answer"),
        ({"keep": []}, "golden.yaml:", "expected a list of names"),
        ({"model": "absent.yaml"}, "absent.yaml", "no such file"),
        ({"devices": "absent.yaml"}, "absent.yaml", "no such file"),
        ({"prompts": ["", 3]}, "golden.yaml:", "not a prompt"),
        ({"times": "yes"}, "golden.yaml:", "expected true or false"),
        ({"tokens": 0}, "golden.yaml:", "tokens"),
        ({"after": ["emit-bundle"]}, "golden.yaml:", "expected other names"),
        ({"strategy": "best"}, "golden.yaml:", "best"),
        ({"kept": ["plan"]}, "golden.yaml:", "kept"),
    ],
)
def test_mistakes_are_named(reader: Reader, case: dict[str, Any], where: str, said: str) -> None:
    reader.case.update({"keep": ["plan"], **case})
    reader.write()
    done = _partc(reader, "golden", "update")
    assert done.returncode == 1
    assert said in done.stderr
    assert where in done.stderr
    assert not (reader.folder / "tiny").exists()


def test_nothing_is_kept_yet(reader: Reader) -> None:
    done = _partc(reader, "golden", "check")
    assert done.returncode == 1
    assert "tiny: error: nothing is kept of tiny yet (golden/tiny); partc golden update golden" in done.stdout
    suite = ElementTree.fromstring(_partc(reader, "golden", "check", "--format", "junit").stdout)
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    github = _partc(reader, "golden", "check", "--format", "github").stdout
    assert github.startswith("::error file=golden/golden.yaml,title=tiny::nothing is kept of tiny yet")
    assert "no case is called" in _partc(reader, "golden", "check", "--case", "absent").stderr


@pytest.mark.in_turns(8)
def test_builds_plans_graphs_and_models_are_compared(reader: Reader) -> None:
    model, devices = "golden/model.yaml", "golden/devices.yaml"
    _good(reader, "compile", model, "--target", devices, "-o", "one")
    shutil.copytree(reader.folder.parent / "one", reader.folder.parent / "two")
    assert _good(reader, "diff", "one", "two") == "nothing changed\n"
    (reader.folder.parent / "a.partc").write_text(_good(reader, "lower", model))
    reader.config["hidden_act"] = "gelu"
    reader.devices["devices"]["board"]["memory"] = "2 MB"
    reader.write()
    _good(reader, "compile", model, "--target", devices, "-o", "two")
    (reader.folder.parent / "b.partc").write_text(_good(reader, "lower", model))
    for one, other, said in (
        ("one", "two", "file changed: board/build.json"),
        ("one/plan.json", "two/plan.json", "memory given: board: 234000 B → 1800000 B"),
        ("a.partc", "b.partc", "operator added: Gelu in layers 0-3 · mlp.act_fn"),
        ("a.partc", model, "operator added: Gelu"),
    ):
        done = _partc(reader, "diff", one, other)
        assert done.returncode == 1, done.stderr
        assert said in done.stdout
    unlike = _partc(reader, "diff", "one", "a.partc")
    assert "a build cannot be compared with a graph" in unlike.stderr


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml", "check.sh"])
def test_examples_of_ci(reader: Reader, name: str, tmp_path: Path) -> None:
    """Their commands run as they are, but for the installation."""
    reader.case["keep"] = ["plan"]
    reader.write()
    _good(reader, "golden", "update")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "partc").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m partc.cli "$@"\n'
    )
    (programs / "pip").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }

    def run() -> int:
        for script in _scripts(ROOT / "examples" / "ci" / name):
            done = subprocess.run(
                ["sh", "-euc", script], cwd=tmp_path, env=env, capture_output=True, check=False
            )
            if done.returncode:
                return done.returncode
        return 0

    assert run() == 0
    reader.devices["objective"] = "throughput"
    reader.write()
    assert run() == 1
    if name != "github.yml":
        assert ElementTree.parse(tmp_path / "golden-report.xml").getroot().get("failures") == "1"


def _scripts(file: Path) -> list[str]:
    if file.suffix == ".sh":
        return [file.read_text()]
    (job,) = (value for value in _jobs(yaml.safe_load(file.read_text())) if isinstance(value, dict))
    if "script" in job:
        return list(job["script"])
    return [step["run"] for step in job["steps"] if "run" in step and "if" not in step]


def _jobs(content: dict[str, Any]) -> list[Any]:
    return list(content["jobs"].values()) if "jobs" in content else list(content.values())


@pytest.mark.parametrize(
    ("tokens", "longest", "most"), [(None, 512, 32), (None, 32, 16), (None, 1, 1), (40, 32, 40)]
)
def test_an_answer_has_room_where_nothing_is_said(tokens: int | None, longest: int, most: int) -> None:
    case = Case("a", Path("a"), "model.yaml", Path("devices.yaml"), tokens=tokens)
    assert case.most_tokens(longest) == most
