"""The documents' tables are those of the structs."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from partc.bundle.writer import write_bundle
from partc.format.document import SCHEMAS, TABLES, documented, schema_text
from partc.pipeline.registry import load_target
from tests.bundle.tiny import module, write_checkpoint

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_tables_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert documented(text) == text, "python -m partc.format.document docs"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_stands_somewhere(name: str) -> None:
    assert any(f"<!-- {name}: begin -->" in path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_up_to_date(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == schema_text(SCHEMAS[name]), "python -m partc.format.document docs"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("target", ["null", "ort", pytest.param("tvm", marks=pytest.mark.tvm)])
def test_bundles_follow_the_schemas(tmp_path: Path, target: str) -> None:
    made = module(write_checkpoint(tmp_path / "model"), target)
    for part in made.parts or ():
        part.graphs = load_target(target).lower(part.graphs, made.info)
    write_bundle(made, tmp_path / "build")
    for name in SCHEMAS:
        schema = json.loads((DOCS / name).read_text(encoding="utf-8"))
        files = sorted(tmp_path.glob(f"build/devices/*/{name.replace('.schema', '')}"))
        assert len(files) == (0 if name == "kernels.schema.json" and target != "tvm" else 2)
        for file in files:
            jsonschema.validate(json.loads(file.read_text()), schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**json.loads(file.read_text()), "extra": 1}, schema)
