"""Folders that a user gives as a checkpoint and that are something else, named as what they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partc.errors import UserError


@dataclass(frozen=True)
class _Kind:
    pattern: str
    """Files that such a folder has."""
    what: str
    hint: str


ADAPTER_FILE = "adapter_config.json"
"""The settings of an adapter, in its folder."""
_ADAPTER = _Kind(
    ADAPTER_FILE,
    "the folder of an adapter (LoRA), not of a model",
    "write `model: BASE` and `adapters: [THIS FOLDER]` in model.yaml, which merges it; "
    "remove adapter_config.json where the weights are merged already",
)
"""Refused beside a config.json, too: transformers would add the adapter to the model where peft is installed."""
_WITHOUT_CONFIG = (
    _Kind(
        "*.gguf",
        "a folder with a GGUF file of llama.cpp",
        "give the file itself, or write `model: {gguf: FILE}` in model.yaml",
    ),
    _Kind(
        "model_index.json",
        "a pipeline of diffusers, which has several models",
        "give the folder of one of them (`text_encoder`), with a task that it is for",
    ),
    _Kind(
        "params.json",
        "a checkpoint in the format of its maker (params.json)",
        "give the one that is converted for transformers, with config.json and model.safetensors",
    ),
    _Kind("*.onnx", "a folder with ONNX files", "write `model: {onnx: FILE}` and `task: graph`"),
)
"""Kinds of folder without config.json."""


def check_checkpoint(folder: Path, where: str, refused: type[UserError]) -> None:
    """Refuse a folder that is no checkpoint of transformers.

    Raises:
        UserError: `refused`, with what the folder is.
    """
    if (folder / _ADAPTER.pattern).is_file():
        raise refused(f"{folder} is {_ADAPTER.what}", where=where, hint=_ADAPTER.hint)
    if (folder / "config.json").is_file():
        return
    for kind in _WITHOUT_CONFIG:
        if any(folder.glob(kind.pattern)):
            raise refused(f"{folder} has no config.json: it is {kind.what}", where=where, hint=kind.hint)
    raise refused(
        f"no config.json in {folder}", where=where, hint="give the folder of a Hugging Face checkpoint"
    )
