"""A checkpoint, the whole way: compiled for two devices, run on this machine, compared with the original."""

from __future__ import annotations

from pathlib import Path

import yaml

from partc.cli.main import run
from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.verifier.check import verify_build
from partc.verifier.report import Report
from tests.families.check import devices_file


def compile_and_verify(config: ModelConfig, folder: Path, tokens: int = 64) -> Report:
    """The report of `partc verify` about the build of `config`, made below `folder`."""
    assert isinstance(config.model, CheckpointFolder)
    model = folder / "model.yaml"
    fields = {
        "model": str(config.model.folder),
        "task": config.task,
        "max_sequence": 112 if config.max_sequence == 32 else config.max_sequence,
        "ignore_tensors": list(config.ignore_tensors),
    }
    model.write_text(yaml.safe_dump(fields))
    build = folder / "build"
    assert run(["compile", str(model), "--target", str(devices_file(folder, 2)), "-o", str(build)]) == 0
    return verify_build(build, tokens=tokens)
