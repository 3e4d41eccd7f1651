"""The source of a model: a folder, the hub, or a config with a seed. Remote code never runs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers.utils import logging as transformers_logging

from partc.config.model import CheckpointFolder, HubModel, RandomModel
from partc.errors import ModelError
from partc.frontend.folder import model_folder


@dataclass(frozen=True)
class Source:
    """A model's config and, unless its weights are random, its folder."""

    config: PretrainedConfig
    folder: Path | None
    random: dict[str, Any] | None = None
    """`{config, seed}` of a model with random weights."""


def open_source(model: CheckpointFolder | HubModel | RandomModel) -> Source:
    """The config of a model; downloads a hub model's files.

    Raises:
        ModelError: unknown model type, unreadable config, custom code, or a hub that cannot be reached.
    """
    quieten()
    if isinstance(model, RandomModel):
        return Source(
            _from_mapping(dict(model.config)), None, {"config": dict(model.config), "seed": model.seed}
        )
    folder = model_folder(model)
    return Source(_from_folder(folder), folder)


def quieten() -> None:
    """No warnings and no progress bars of transformers: partc has its own."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _from_mapping(data: dict[str, Any]) -> PretrainedConfig:
    kind = str(data.pop("model_type"))
    if kind not in CONFIG_MAPPING:
        raise _unknown(kind, "model.config.model_type")
    try:
        return CONFIG_MAPPING[kind](**data)
    except Exception as error:  # configs check themselves with exceptions of many kinds
        raise ModelError(f"not a config of {kind}: {error}", where="model.config") from error


def _from_folder(folder: Path) -> PretrainedConfig:
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(
            "no config.json", where=str(folder), hint="give the folder of a Hugging Face checkpoint"
        )
    try:
        data = PretrainedConfig.get_config_dict(folder)[0]
    except Exception as error:
        raise ModelError(f"not a config: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise ModelError("not a config: it is no mapping", where=str(path), hint="download it again")
    if data.get("auto_map"):
        raise ModelError(
            "the model brings code of its own (auto_map), which partc never runs",
            where=str(path),
            hint="use a model whose architecture is part of transformers, or export it to ONNX yourself",
        )
    kind = data.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise _unknown(str(kind), str(path))
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise ModelError(f"not a config of {kind}: {error}", where=str(path)) from error


def _unknown(kind: str, where: str) -> ModelError:
    near = difflib.get_close_matches(kind, list(CONFIG_MAPPING), 3)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "see the model types of your transformers version"
    )
    return ModelError(f"unknown model type {kind!r}", where=where, hint=hint)


def random_network(random: dict[str, Any], task: str, dtype: torch.dtype) -> Any:
    """The model of `{config, seed}` with its weights, the same for the same seed and version of torch."""
    from partc.frontend.trace.export import MODEL_CLASSES

    config = _from_mapping(dict(random["config"]))
    with torch.random.fork_rng():
        torch.manual_seed(int(random["seed"]))
        return MODEL_CLASSES[task].from_config(config, dtype=dtype).eval()
