"""Where a model comes from, as model.yaml says it: a folder, the hub, a config, an ONNX or a GGUF file; adapters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from partc.config.checkpoint_folder import ADAPTER_FILE, check_checkpoint
from partc.config.section import Section, describe
from partc.errors import ConfigError

_REMOTE_CODE = frozenset({"trust_remote_code", "remote_code", "auto_map", "custom_code"})
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
"""The id of a model on the hub."""


@dataclass(frozen=True)
class CheckpointFolder:
    """A local folder with config.json and safetensors files."""

    folder: Path

    @property
    def name(self) -> str:
        """A short name for tables and build.json."""
        return self.folder.resolve().name


@dataclass(frozen=True)
class HubModel:
    """A model of the Hugging Face hub."""

    repo: str
    """`organisation/name`."""

    @property
    def name(self) -> str:
        """A short name for tables and build.json."""
        return self.repo.rpartition("/")[2]


@dataclass(frozen=True)
class GgufModel:
    """A GGUF file of llama.cpp; of a split one the first part."""

    path: Path

    @property
    def name(self) -> str:
        """A short name for tables and build.json."""
        return _SPLIT.sub("", self.path.stem)


@dataclass(frozen=True)
class Adapter:
    """An adapter (LoRA) that is merged into the weights of a checkpoint."""

    folder: Path
    scale: float = 1.0
    """A factor beside its own."""
    dequantize: bool = False
    """Whether weights that are quantised become floats for it."""


@dataclass(frozen=True)
class RandomModel:
    """A model with random weights, made from its config alone."""

    config: Mapping[str, object]
    """The content of config.json; `model_type` names the family."""
    seed: int
    """The seed of the random weights."""

    @property
    def name(self) -> str:
        """A short name for tables and build.json."""
        return f"random-{self.config['model_type']}"


@dataclass(frozen=True)
class OnnxFile:
    """Any ONNX graph."""

    path: Path

    @property
    def name(self) -> str:
        """A short name for tables and build.json."""
        return self.path.stem


ModelSource = CheckpointFolder | GgufModel | HubModel | RandomModel | OnnxFile
"""The source of a model."""


def read_source(top: Section, folder: Path) -> ModelSource:
    """The value of `model` in a file of `folder`; raises ConfigError where it names nothing that is there."""
    value = top.require("model", "model: ./folder")
    if isinstance(value, Mapping):
        return _described_source(top.section("model"), folder)
    if not isinstance(value, str) or not value:
        raise top.error(f"expected a folder, a hub id or a mapping, found {describe(value)}", "model")
    path = folder / Path(value).expanduser()
    if path.is_dir():
        return CheckpointFolder(_checkpoint(path, top.place("model")))
    if value.endswith(".onnx"):
        raise top.error(
            "an ONNX file is given as a mapping",
            "model",
            hint=f"write `model: {{onnx: {value}}}` and `task: graph`",
        )
    if value.endswith(".gguf"):
        return GgufModel(existing_file(path, top.place("model")))
    if HUB_ID.match(value):
        return HubModel(value)
    raise top.error(
        f"no such folder: {path}",
        "model",
        hint="paths are relative to this file; a hub id looks like org/name",
    )


def _described_source(section: Section, folder: Path) -> ModelSource:
    """`{onnx: file}`, `{gguf: file}` or `{config: {...}, seed: 0}`."""
    refuse_remote_code(section)
    own = next((key for key in ("onnx", "gguf") if key in section), None)
    section.allow((own,) if own else ("config", "seed", "onnx", "gguf"))
    if "gguf" in section:
        return GgufModel(existing_file(folder / section.text("gguf"), section.place("gguf")))
    if "onnx" in section:
        return OnnxFile(existing_file(folder / section.text("onnx"), section.place("onnx")))
    section.require("config", "config: {model_type: llama}")
    config = section.section("config")
    # What is copied out of a config.json may name code of its own: transformers' class is taken all the same.
    refuse_remote_code(config, _REMOTE_CODE - {"auto_map"})
    config.text("model_type")
    return RandomModel(dict(config.data), section.whole("seed", 0, minimum=0))


def refuse_remote_code(section: Section, keys: Collection[str] = _REMOTE_CODE) -> None:
    """Refuse keys that ask for code which comes with a checkpoint."""
    for key in section.data:
        if key.lower().replace("-", "_").replace(" ", "_") in keys:
            raise section.error(
                "code that comes with a checkpoint is never run", key,
                hint="remove the key; use a model whose type transformers knows",
            )  # fmt: skip


def _checkpoint(folder: Path, where: str) -> Path:
    check_checkpoint(folder, where, ConfigError)
    return folder


def existing_file(path: Path, where: str) -> Path:
    """A file that must be there; raises ConfigError where it is not."""
    if "\0" in str(path) or not path.is_file():
        raise ConfigError(
            f"no such file: {str(path)!r}", where=where, hint="paths are relative to the file that names them"
        )
    return path


def read_tokenizer(top: Section, model: ModelSource, folder: Path) -> CheckpointFolder | HubModel | None:
    """A folder with tokenizer.json, or a hub id."""
    if "tokenizer" not in top:
        return None
    value = top.text("tokenizer")
    if not isinstance(model, RandomModel):
        raise top.error(
            "`tokenizer` belongs to a model that is made from a config",
            "tokenizer",
            hint="remove it: a checkpoint brings its own, and an ONNX graph takes tensors",
        )
    path = folder / Path(value).expanduser()
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            raise top.error(
                f"no tokenizer.json in {path}",
                "tokenizer",
                hint="give the folder of a checkpoint, or save its tokenizer with "
                "AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)",
            )
        return CheckpointFolder(path)
    if HUB_ID.match(value):
        return HubModel(value)
    raise top.error(
        f"no such folder: {path}",
        "tokenizer",
        hint="give a folder with tokenizer.json (paths are relative to this file), or a hub id such as org/name",
    )


def read_ignored(top: Section, model: ModelSource) -> tuple[str, ...]:
    """Patterns of tensors of a checkpoint that are left out."""
    patterns = top.data.get("ignore_tensors", [])
    if not isinstance(patterns, list) or not all(isinstance(text, str) and text for text in patterns):
        raise top.error(
            f"expected a list of texts, found {describe(patterns)}",
            "ignore_tensors",
            hint='write `ignore_tensors: ["model.layers.3.*"]`',
        )
    if patterns and not isinstance(model, CheckpointFolder | GgufModel | HubModel):
        raise top.error(
            "`ignore_tensors` belongs to a checkpoint",
            "ignore_tensors",
            hint="remove it: there is no checkpoint",
        )
    return tuple(patterns)


def read_adapters(top: Section, model: ModelSource, folder: Path) -> tuple[Adapter, ...]:
    """A list of folders, or of `{folder: …, scale: 0.5}`."""
    entries = top.data.get("adapters", [])
    if not isinstance(entries, list) or not all(isinstance(entry, str | Mapping) for entry in entries):
        raise top.error(
            f"expected a list of folders, found {describe(entries)}",
            "adapters",
            hint="write `adapters: [./lora]`, or `adapters: [{folder: ./lora, scale: 0.5}]`",
        )
    if entries and not isinstance(model, CheckpointFolder | GgufModel | HubModel):
        raise top.error(
            "`adapters` belongs to a checkpoint", "adapters", hint="remove it: there is no checkpoint"
        )
    found = []
    for index, entry in enumerate(entries):
        section = Section(
            {"folder": entry} if isinstance(entry, str) else entry, top.place(f"adapters[{index}]")
        )
        section.allow(("folder", "scale", "dequantize"))
        path = folder / Path(section.text("folder")).expanduser()
        if not (path / ADAPTER_FILE).is_file():
            raise section.error(
                f"no {ADAPTER_FILE} in {path}",
                "folder",
                hint="give the folder that peft's save_pretrained wrote",
            )
        dequantize = section.data.get("dequantize", False)
        if not isinstance(dequantize, bool):
            raise section.error(f"expected true or false, found {describe(dequantize)}", "dequantize")
        found.append(Adapter(path, section.number("scale", 1.0), dequantize))
    return tuple(found)
