"""A target that partc does not know is a folder and one line in the table of targets; nothing else names it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from partc.cli.main import run
from partc.pipeline import registry, versions
from tests.families.ring import DirectRing

pytestmark = [pytest.mark.hf, pytest.mark.ort]

ABACUS = '''
"""A target of its own name, provider, option and fusion, whose files the runner's engine for ONNX computes."""

from dataclasses import dataclass, replace

from partc.errors import ConfigError
from partc.pipeline.contract import NO_STORE, Target
from targets.ort import OrtTarget


@dataclass(frozen=True)
class AbacusTarget(Target):
    name = "abacus"
    providers = ("wood", "glass")
    libraries = ("numpy",)
    fusions = ("carry",)

    provider: str = "wood"
    beads: int = 10
    carries: bool = True

    def without(self, fusions):
        return replace(self, carries=False) if "carry" in fusions else self

    def check_options(self):
        if self.beads < 2:
            raise ConfigError("an abacus has two beads at least", where="options.beads")

    def lower(self, graphs, info):
        lowered = OrtTarget().lower(graphs, info)
        for graph in lowered:
            for node in graph.nodes:
                node.scope = "carried" if self.carries else "plain"
        return lowered

    def emit(self, part, info, folder, progress, store=NO_STORE):
        artifact = OrtTarget().emit(part, info, folder, progress, store)
        scopes = {node.scope for graph in part.graphs for node in graph.nodes}
        return replace(artifact, toolkit={"beads": str(self.beads), "wire": self.provider, "fusions": str(scopes)})
'''


@pytest.fixture
def abacus(small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder and the line; the phone computes on one, the board with the ort target."""
    (small / "elsewhere" / "abacus").mkdir(parents=True)
    (small / "elsewhere" / "abacus" / "__init__.py").write_text(ABACUS)
    monkeypatch.syspath_prepend(str(small / "elsewhere"))
    monkeypatch.setitem(registry.TARGETS, "abacus", "abacus:AbacusTarget")
    text = (small / "devices.yaml").read_text()
    own = "{target: abacus, provider: glass, options: {beads: 7}, flops: 1 G"
    (small / "devices.yaml").write_text(
        text.replace('{target: "null", flops: 1 G', own).replace('"null"', "ort")
    )
    return small


COMPILE = ["compile", "model.yaml", "--target", "devices.yaml"]


def test_it_compiles_and_runs_beside_another(abacus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMPILE) == 0, capsys.readouterr().err
    phone, board = builds(abacus)
    assert phone["target"] == "abacus"
    assert phone["toolkit"] == {"beads": "7", "wire": "glass", "fusions": "{'carried'}"}
    assert board["target"] == "ort"
    x = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)
    (found,) = DirectRing(abacus / "build").outputs({"x": x}).values()
    evaluator: Any = ReferenceEvaluator(onnx.load(abacus / "net.onnx"))
    (expected,) = evaluator.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def builds(folder: Path) -> list[dict[str, Any]]:
    names = ("phone", next(p.name for p in (folder / "build" / "devices").iterdir() if p.name != "phone"))
    return [json.loads((folder / "build" / "devices" / n / "build.json").read_text()) for n in names]


def test_its_fusion_can_be_left_out(abacus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPILE, "--disable", "carry", "--disable", "bias"]) == 0, capsys.readouterr().err
    assert builds(abacus)[0]["toolkit"]["fusions"] == "{'plain'}"
    assert run([*COMPILE, "--disable", "cary"]) == 1
    assert "carry" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("provider: glass", "provider: clay", "choose one of: wood, glass"),
        ("beads: 7", "bead: 7", "did you mean 'beads'?"),
        ("beads: 7", "beads: 1", "an abacus has two beads at least\n  where: device phone: options.beads"),
    ],
    ids=["provider", "option", "check"],
)
def test_what_it_does_not_know_is_refused(
    abacus: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (abacus / "devices.yaml").read_text()
    (abacus / "devices.yaml").write_text(text.replace(old, new))
    assert run(COMPILE) == 1
    assert message in capsys.readouterr().err


def test_another_version_of_its_library_makes_its_files_anew(
    abacus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(COMPILE) == 0, capsys.readouterr().err
    records = abacus / "build" / "runs" / "parts"
    before = {path.name: json.loads(path.read_text())["inputs"] for path in records.iterdir()}
    found = versions.library_versions

    def another_numpy(names: Iterable[str]) -> dict[str, str]:
        return {**found(names), **({"numpy": "0"} if tuple(names) == ("numpy",) else {})}

    monkeypatch.setattr("partc.bundle.resume.library_versions", another_numpy)
    assert run(COMPILE) == 0, capsys.readouterr().err
    after = {path.name: json.loads(path.read_text())["inputs"] for path in records.iterdir()}
    assert [name for name in before if after[name] != before[name]] == ["phone.json"]
