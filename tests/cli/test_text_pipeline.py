"""The pipeline as text: what passes hand each other in memory and what they print is the same."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.pipeline.default import PHASES

pytestmark = pytest.mark.hf
OPTIONS = {
    "partition-graph": "{devices=devices.yaml}",
    "split-graph": "{devices=devices.yaml}",
    "lower-target": "{devices=devices.yaml}",
    "emit-bundle": "{output=text, devices=devices.yaml}",
}


def _files(folder: str) -> dict[str, bytes]:
    """Everything but keys and what is no part of a bundle."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if not {"keys", "runs"} & set(path.parts)
    }


def test_every_dump_reads_back(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "model.yaml", "--target", "devices.yaml", "--dump-dir", "dumps"]) == 0
    capsys.readouterr()
    for dump in sorted(Path("dumps").iterdir()):
        assert run(["opt", str(dump), "-p", ""]) == 0
        assert capsys.readouterr().out == dump.read_text(), dump.name


def test_a_pipe_of_passes_compiles_the_same(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["compile", "model.yaml", "--target", "devices.yaml", "-o", "memory"]) == 0
    capsys.readouterr()
    assert run(["lower", "model.yaml"]) == 0
    for name in (name for names in PHASES.values() for name in names):
        monkeypatch.setattr(sys, "stdin", io.StringIO(capsys.readouterr().out))
        assert run(["opt", "-", "-p", name + OPTIONS.get(name, "")]) == 0
    assert _files("text") == _files("memory")
