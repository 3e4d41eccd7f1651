"""Where the original of a build lies. It is kept beside the bundle (in runs/), not in it: a bundle names no path."""

from __future__ import annotations

import json
from pathlib import Path

from partc.config.model import ModelConfig, load_model_config
from partc.errors import BundleError

_FILE = Path("runs") / "origin.json"


def write_origin(build: Path, model: str) -> None:
    """Remember what was compiled: the path of model.yaml, of a folder or of an ONNX file, or a hub id."""
    path = Path(model)
    file = build / _FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"model": str(path.resolve()) if path.exists() else model}) + "\n")


def read_origin(build: Path, model: str | None = None) -> ModelConfig:
    """The config of the original; `model` wins over what is remembered.

    Raises:
        BundleError: nothing is remembered.
        ConfigError: the original is not there any more.
    """
    if model is None:
        file = build / _FILE
        if not file.exists():
            raise BundleError(
                "it is not known what this build was compiled from",
                where=str(build),
                hint=f"name the original: partc verify {build} --model model.yaml",
            )
        model = str(json.loads(file.read_text())["model"])
    return load_model_config(model)
