"""A GGUF file whose matrices are of every format: no float is left of one, and its cut model is the uncut one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from partc.cli.main import run
from partc.ir.stored_integers import KEPT_BLOCKS
from tests.families.check import devices_file
from tests.frontend.gguf.makers import CONVERTED, blocks_of, convert, is_matrix, rewrite, save_model

pytestmark = pytest.mark.hf
_TABLE = "NVFP4"
"""The format of the table of tokens: one without minima."""


def mixed(folder: Path) -> Path:
    """A Llama whose 16 matrices have the 16 formats that are kept."""
    save_model(CONVERTED["llama"], folder / "model")
    convert(folder / "model", folder / "plain.gguf")
    kinds = iter([kind for kind in KEPT_BLOCKS if kind != _TABLE])

    def change(name: str, data: np.ndarray) -> tuple[np.ndarray, Any] | None:
        if not is_matrix(name, data):
            return None
        kind = _TABLE if name.startswith("token_embd") else next(kinds)
        return blocks_of(data, kind), gguf.GGMLQuantizationType[kind]

    rewrite(folder / "plain.gguf", folder / "mixed.gguf", change)
    assert next(kinds, None) is None
    return folder / "mixed.gguf"


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("tvm", "ort")]
)
def test_all_formats_at_once(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = f"model: {{gguf: {mixed(tmp_path)}}}\nmax_sequence: 32\ndrafts: off\n"
    (tmp_path / "model.yaml").write_text(lines)
    devices = devices_file(tmp_path, 2, (target,))
    assert run(["compile", "model.yaml", "--target", str(devices), "--strategy", "even"]) == 0
    shown = capsys.readouterr()
    assert "weights: stored, " in shown.out and " int4 and " in shown.out and " int8_blocks; " in shown.out
    assert "matrices are stored as" not in shown.out + shown.err
    code = run(["verify", "build", "--json", "--tokens", "12"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["equal"], report["identical_tokens"]) == (0, True, True)
    assert report["quantization"]["weights"] == "stored"
    assert report["quantization"]["kl_nats"] < 0.02
