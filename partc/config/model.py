"""model.yaml: which model, for which task, and how large its requests may be."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partc.config.checkpoint_folder import check_checkpoint
from partc.config.onnx_inputs import Numbers, read_constant_inputs, read_sizes
from partc.config.positions import LONGEST, default_length
from partc.config.quantize import KEYS as QUANTIZE_KEYS
from partc.config.quantize import read_quantization
from partc.config.section import Section, describe
from partc.config.yamlfile import load_yaml
from partc.errors import ConfigError
from partc.format.tasks import TASKS, WITH_MEDIA, WITH_SOURCE, generates
from partc.ir.quantization import Quantization

DTYPES = ("float32", "float16", "bfloat16")
_KEYS = (
    "model",
    "task",
    "dtype",
    "quantize",
    "max_sequence",
    "max_source",
    "max_batch",
    "max_requests",
    "workload",
    "dims",
    "inputs",
    "image_size",
    "samples",
    "tokenizer",
    "ignore_tensors",
)
_IN_QUANTIZE = {key: f"write `quantize: {{{key}: …}}`" for key in QUANTIZE_KEYS}
"""Key → the place where it belongs."""
PLACES = {
    **{key: f"{place} in model.yaml" for key, place in _IN_QUANTIZE.items()},
    **{key: f"write `{key}` in model.yaml" for key in _KEYS},
}
"""The same for the user who writes it in another file."""
BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Batches that `max_batch: auto` tries first; the planner then looks between them."""
_REMOTE_CODE = frozenset({"trust_remote_code", "remote_code", "auto_map", "custom_code"})
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


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


@dataclass(frozen=True)
class Workload:
    """The requests that the plan is made best for."""

    prompt: int = 32
    """Tokens of a prompt."""
    generate: int = 96
    """Tokens generated after it."""
    batch: int = 1
    """Sequences of a request."""


@dataclass(frozen=True)
class ModelConfig:
    """The content of model.yaml, checked, with its defaults filled in."""

    model: ModelSource
    task: str = "text-generation"
    """One of `partc.format.tasks.TASKS`."""
    dtype: str = "float32"
    """One of `DTYPES`: of weights and activations."""
    quantize: Quantization | None = None
    """Precision of the weights where it is another one than `dtype`."""
    max_sequence: int = 512
    """Tokens of a sequence, prompt and answer together; of the answer alone where a source is read before."""
    max_source: int = 512
    """Tokens of a text that an encoder reads before."""
    max_batch: int = 1
    """Sequences in one request; with `auto_batch` the most that there may be."""
    max_requests: int = 4
    """Requests in flight, each with its own KV caches."""
    workload: Workload = field(default_factory=Workload)
    dims: Mapping[str, int] = field(default_factory=dict)
    """Largest value of each symbolic size of an ONNX graph, by the names that `partc.frontend.onnx_inputs` knows."""
    exact: frozenset[str] = frozenset()
    """Those of `dims` that all requests have exactly."""
    inputs: Mapping[str, Numbers] = field(default_factory=dict)
    """Inputs of an ONNX graph that have the same value in all requests, which therefore do not bring them."""
    image_size: tuple[int, int] | None = None
    """Height and width of pictures, in pixels; None: as the model's config says."""
    samples: int | None = None
    """Length of a piece of sound, in samples."""
    tokenizer: CheckpointFolder | HubModel | None = None
    """The tokenizer of a model that is made from a config; others have theirs in their folder."""
    ignore_tensors: tuple[str, ...] = ()
    """Patterns of tensors of the checkpoint that the model does not need."""
    sequence_place: str = field(default="max_sequence", compare=False)
    """The place of max_sequence in the file, for messages."""
    keep_stored: bool = True
    """Whether integers of a quantised checkpoint stay as they are: where nobody writes `quantize`."""
    auto_batch: bool = False
    """`max_batch: auto`: the planner takes the smallest batch that makes nearly as many tokens per second as the best
    one. A plan for a larger batch needs more memory (caches, activations) and its step takes longer."""

    @property
    def name(self) -> str:
        """A short name of the model."""
        return self.model.name

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that the planner tries for max_batch first; empty where it is given."""
        return BATCHES if self.auto_batch else ()


def load_model_config(model: str | Path) -> ModelConfig:
    """Reads model.yaml; a checkpoint folder, a file or a hub id stands for itself with all defaults.

    Raises:
        ConfigError: nothing is there, or a key or value is wrong.
    """
    path = Path(model)
    if path.suffix in (".yaml", ".yml"):
        return read_model_config(load_yaml(path), path.parent)
    if path.suffix == ".onnx":
        return ModelConfig(OnnxFile(_existing_file(path, str(path))), task="graph")
    if path.suffix == ".gguf":
        return read_model_config(Section({"model": path.name}, str(path)), path.parent)
    if path.is_dir():
        return read_model_config(Section({"model": "."}, str(path)), path)
    if path.exists():
        raise ConfigError(
            "not a model",
            where=str(path),
            hint="give a model.yaml, a checkpoint folder, a .gguf file, an .onnx file or a hub id",
        )
    if _HUB_ID.match(str(model)):
        return ModelConfig(HubModel(str(model)))
    raise ConfigError(
        "no such file or folder",
        where=str(model),
        hint="give a model.yaml, a checkpoint folder, a .gguf file, an .onnx file or a hub id such as org/name",
    )


def read_model_config(top: Section, folder: Path) -> ModelConfig:
    """Checks the content of a model.yaml that lies in `folder`."""
    _refuse_remote_code(top)
    top.allow(_KEYS, _IN_QUANTIZE)
    model = _source(top, folder)
    is_onnx = isinstance(model, OnnxFile)
    task = top.choice("task", TASKS, "graph" if is_onnx else "text-generation")
    if (task == "graph") != is_onnx:
        raise top.error(
            "task `graph` and a model `{onnx: file}` belong together", "task" if "task" in top else "model",
            hint="write `task: graph` with `model: {onnx: net.onnx}`, or another task with a checkpoint",
        )  # fmt: skip
    largest = _max_batch(top, task)
    _check_media(top, task, largest)
    return ModelConfig(
        model=model,
        task=task,
        dtype=top.choice("dtype", DTYPES, "float32"),
        quantize=read_quantization(top),
        keep_stored="quantize" not in top,
        max_sequence=(longest := top.whole("max_sequence", _longest(model), 2 if generates(task) else 1)),
        max_source=(most_source := _max_source(top, task, longest)),
        sequence_place=top.place("max_sequence"),
        max_batch=largest,
        auto_batch=top.data.get("max_batch") == "auto",
        max_requests=top.whole("max_requests", 4),
        workload=_workload(top, task, longest, most_source, largest),
        dims=(sizes := read_sizes(top, is_onnx)).largest,
        exact=sizes.exact,
        inputs=read_constant_inputs(top, is_onnx),
        image_size=_image_size(top),
        samples=top.whole("samples", 1) if "samples" in top else None,
        tokenizer=_tokenizer(top, model, folder),
        ignore_tensors=_ignore_tensors(top, model),
    )


def _longest(model: ModelSource) -> int:
    match model:
        case CheckpointFolder(known) | GgufModel(known) | RandomModel(known, _):
            return default_length(known)
        case HubModel() | OnnxFile():
            return LONGEST


def _tokenizer(top: Section, model: ModelSource, folder: Path) -> CheckpointFolder | HubModel | None:
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
    if _HUB_ID.match(value):
        return HubModel(value)
    raise top.error(
        f"no such folder: {path}",
        "tokenizer",
        hint="give a folder with tokenizer.json (paths are relative to this file), or a hub id such as org/name",
    )


def _ignore_tensors(top: Section, model: ModelSource) -> tuple[str, ...]:
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


def _image_size(top: Section) -> tuple[int, int] | None:
    value = top.data.get("image_size")
    if value is None:
        return None
    sides = value if isinstance(value, list) else [value, value]
    whole = [side for side in sides if type(side) is int and side > 0]
    if len(sides) != 2 or len(whole) != 2:
        raise top.error(
            f"expected a whole number or [height, width], found {describe(value)}",
            "image_size",
            hint="write `image_size: 224`, in pixels",
        )
    return whole[0], whole[1]


def _source(top: Section, folder: Path) -> ModelSource:
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
        return GgufModel(_existing_file(path, top.place("model")))
    if _HUB_ID.match(value):
        return HubModel(value)
    raise top.error(
        f"no such folder: {path}",
        "model",
        hint="paths are relative to this file; a hub id looks like org/name",
    )


def _described_source(section: Section, folder: Path) -> ModelSource:
    """`{onnx: file}`, `{gguf: file}` or `{config: {...}, seed: 0}`."""
    _refuse_remote_code(section)
    own = next((key for key in ("onnx", "gguf") if key in section), None)
    section.allow((own,) if own else ("config", "seed", "onnx", "gguf"))
    if "gguf" in section:
        return GgufModel(_existing_file(folder / section.text("gguf"), section.place("gguf")))
    if "onnx" in section:
        return OnnxFile(_existing_file(folder / section.text("onnx"), section.place("onnx")))
    section.require("config", "config: {model_type: llama}")
    config = section.section("config")
    # What is copied out of a config.json may name code of its own: transformers' class is taken all the same.
    _refuse_remote_code(config, _REMOTE_CODE - {"auto_map"})
    config.text("model_type")
    return RandomModel(dict(config.data), section.whole("seed", 0, minimum=0))


def _refuse_remote_code(section: Section, keys: Collection[str] = _REMOTE_CODE) -> None:
    for key in section.data:
        if key.lower().replace("-", "_").replace(" ", "_") in keys:
            raise section.error(
                "code that comes with a checkpoint is never run", key,
                hint="remove the key; use a model whose type transformers knows",
            )  # fmt: skip


def _checkpoint(folder: Path, where: str) -> Path:
    check_checkpoint(folder, where, ConfigError)
    return folder


def _existing_file(path: Path, where: str) -> Path:
    if "\0" in str(path) or not path.is_file():
        raise ConfigError(
            f"no such file: {str(path)!r}", where=where, hint="paths are relative to the file that names them"
        )
    return path


def _max_batch(top: Section, task: str) -> int:
    value = top.data.get("max_batch")
    if isinstance(value, str) and value != "auto":
        raise top.error(f"expected a whole number or `auto`, found {describe(value)}", "max_batch")
    if value != "auto":
        return top.whole("max_batch", 1)
    if task == "graph":
        raise top.error(
            "`max_batch: auto` needs a model of transformers, whose batch is known",
            "max_batch",
            hint="give a number",
        )
    return BATCHES[-1]


def _check_media(top: Section, task: str, max_batch: int) -> None:
    """Refuse several sequences in a request where each speaks of a picture or a sound: a request has one of them."""
    if task in WITH_MEDIA and max_batch > 1:
        raise top.error(
            f"a model for {task} has one sequence in a request, since a request has one picture or sound",
            "max_batch",
            hint="remove max_batch; `max_requests` may be in flight at once",
        )


def _max_source(top: Section, task: str, max_sequence: int) -> int:
    if "max_source" in top and task != "text2text-generation":
        raise top.error(
            f"a model for {task} reads no text before it answers",
            "max_source",
            hint="write `max_sequence`, or `task: text2text-generation`",
        )
    return top.whole("max_source", max_sequence)


def _workload(top: Section, task: str, max_sequence: int, max_source: int, max_batch: int) -> Workload:
    """The workload; the defaults shrink to a short max_sequence, but what is written must fit."""
    section = top.section("workload")
    section.allow(("prompt", "generate", "batch"))
    answers = generates(task)
    if task in WITH_SOURCE:
        prompt = section.whole("prompt", min(32, max_source))
        if prompt > max_source:
            raise top.error(
                f"a workload of {prompt} tokens to read is longer than max_source ({max_source})",
                "workload",
                hint="raise max_source or shorten the workload",
            )
        generate = section.whole("generate", min(96, max_sequence - 1))
        if generate >= max_sequence:
            raise top.error(
                f"a workload of {generate} tokens is longer than max_sequence ({max_sequence})",
                "workload",
                hint="raise max_sequence or shorten the workload",
            )
        return Workload(prompt, generate, _workload_batch(top, task, max_batch))
    prompt = section.whole("prompt", min(32, max(1, max_sequence // 4) if answers else max_sequence))
    generate = section.whole("generate", min(96, max(1, max_sequence - prompt)))
    if task != "graph" and prompt + (generate if answers else 0) > max_sequence:
        needed = f"{prompt} + {generate} tokens" if answers else f"{prompt} tokens"
        raise top.error(
            f"a workload of {needed} is longer than max_sequence ({max_sequence})",
            "workload",
            hint="raise max_sequence or shorten the workload",
        )
    return Workload(prompt, generate, _workload_batch(top, task, max_batch))


def _workload_batch(top: Section, task: str, max_batch: int) -> int:
    section = top.section("workload")
    batch = section.whole("batch", 1)
    if "batch" in section and task == "graph":
        raise section.error("the batch of an ONNX graph is one of its sizes", "batch", hint="use `dims`")
    if "batch" in section and top.data.get("max_batch") == "auto":
        raise section.error(
            "`max_batch: auto` chooses the batch of the workload, too",
            "batch",
            hint="remove this line, or give max_batch a number",
        )
    if batch > max_batch:
        raise section.error(
            f"a workload of {batch} sequences at a time is more than max_batch ({max_batch})",
            "batch",
            hint=f"write `max_batch: {batch}`, or lower the batch of the workload",
        )
    return batch
