"""The source of a model: a folder, the hub, or a config with a seed. Remote code never runs."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers.utils import logging as transformers_logging

from partc.config.sources import CheckpointFolder, GgufModel, HubModel, RandomModel
from partc.errors import ModelError
from partc.frontend.folder import check_folder, model_folder
from partc.frontend.quantized.methods import Quantized, quantized_by
from partc.quiet import quieten_transformers


@dataclass(frozen=True)
class Source:
    """A model's config and, unless its weights are random, its folder."""

    config: PretrainedConfig
    folder: Path | None
    random: dict[str, Any] | None = None
    """`{config, seed}` of a model with random weights."""
    quantized: Quantized | None = None
    """Who quantised the checkpoint; None: nobody."""


def open_source(model: CheckpointFolder | GgufModel | HubModel | RandomModel) -> Source:
    """The config of a model; downloads a hub model's files.

    Raises:
        ModelError: unknown model type, unreadable config, custom code, or a hub that cannot be reached.
    """
    quieten_transformers(transformers_logging)
    if isinstance(model, RandomModel):
        return Source(
            _from_mapping(dict(model.config)), None, {"config": dict(model.config), "seed": model.seed}
        )
    folder = model_folder(model)
    check_folder(folder)
    config, quantized = _from_folder(folder)
    return Source(config, folder, quantized=quantized)


def _from_mapping(data: dict[str, Any]) -> PretrainedConfig:
    kind, code = str(data.pop("model_type")), data.pop("auto_map", None)
    if kind not in CONFIG_MAPPING:
        where = "model.config.model_type"
        raise _foreign(kind, where) if code else _unknown(kind, where)
    if (quantized := quantized_by(data, "model.config")) is not None:
        raise ModelError(
            "a model that is made from a config has plain weights, and by this one they are quantised by "
            f"{quantized.method.name}",
            where="model.config: quantization_config",
            hint="remove quantization_config; `quantize: int4` in model.yaml is partc's own",
        )
    try:
        return CONFIG_MAPPING[kind](**data)
    except Exception as error:  # configs check themselves with exceptions of many kinds
        raise ModelError(f"not a config of {kind}: {error}", where="model.config") from error


def _from_folder(folder: Path) -> tuple[PretrainedConfig, Quantized | None]:
    path = folder / "config.json"
    data = _read_config(path)
    if not isinstance(data, dict):
        raise ModelError("not a config: it is no mapping", where=str(path), hint="download it again")
    quantized = quantized_by(data, str(path), folder)
    kind = data.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise _foreign(str(kind), str(path)) if data.get("auto_map") else _unknown(str(kind), str(path))
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # configs check themselves with exceptions of many kinds
        raise ModelError(f"not a config of {kind}: {error}", where=str(path)) from error
    if hasattr(config, "quantization_config"):  # transformers would want the library that it names
        del config.quantization_config
    return config, quantized


def _read_config(path: Path) -> Any:
    """A config as transformers reads it: JSON, in which `Infinity` may stand for a number."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"not a config: {error}", where=str(path), hint="download it again") from error


def _foreign(kind: str, where: str) -> ModelError:
    return ModelError(
        f"the model brings code of its own (auto_map), which partc never runs, and transformers has no {kind!r}",
        where=where,
        hint="use a model whose architecture is part of transformers, or export it to ONNX yourself",
    )


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
