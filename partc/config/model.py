"""model.yaml: which model, for which task, and how large its requests may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partc.config.onnx_inputs import Numbers, read_constant_inputs, read_sizes
from partc.config.positions import LONGEST, default_length
from partc.config.quantize import KEYS as QUANTIZE_KEYS
from partc.config.quantize import read_quantization
from partc.config.section import Section, describe
from partc.config.sources import (
    HUB_ID,
    Adapter,
    CheckpointFolder,
    GgufModel,
    HubModel,
    ModelSource,
    OnnxFile,
    RandomModel,
    existing_file,
    read_adapters,
    read_ignored,
    read_source,
    read_tokenizer,
    refuse_remote_code,
)
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
    "drafts",
    "workload",
    "dims",
    "inputs",
    "image_size",
    "samples",
    "tokenizer",
    "ignore_tensors",
    "adapters",
)
_FIXED_BY_ONNX = {"dtype": "types", "image_size": "sizes", "samples": "sizes"}
"""Key that says nothing of an ONNX graph → what it has instead."""
_IN_QUANTIZE = {key: f"write `quantize: {{{key}: …}}`" for key in QUANTIZE_KEYS}
"""Key → the place where it belongs."""
PLACES = {
    **{key: f"{place} in model.yaml" for key, place in _IN_QUANTIZE.items()},
    **{key: f"write `{key}` in model.yaml" for key in _KEYS},
}
"""The same for the user who writes it in another file."""
_LEAST_CACHE = 7
"""Rows of a cache: models are traced with a step of so many tokens."""
BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Batches that `max_batch: auto` tries first; the planner then looks between them."""


@dataclass(frozen=True)
class Workload:
    """The requests that the plan is made best for."""

    prompt: int = 32
    """Tokens of a prompt."""
    generate: int = 96
    """Tokens generated after it."""
    batch: int = 1
    """Sequences of a request."""
    drafted: float = 0.0
    """Share of the tokens that come true from a guess (drafts)."""


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
    adapters: tuple[Adapter, ...] = ()
    """Merged into the weights in this order."""
    sequence_place: str = field(default="max_sequence", compare=False)
    """The place of max_sequence in the file, for messages."""
    keep_stored: bool = True
    """Whether integers of a quantised checkpoint stay as they are: where nobody writes `quantize`."""
    drafts: bool = True
    """Whether steps may take guessed tokens."""
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
        return ModelConfig(OnnxFile(existing_file(path, str(path))), task="graph")
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
    if HUB_ID.match(str(model)):
        return ModelConfig(HubModel(str(model)))
    raise ConfigError(
        "no such file or folder",
        where=str(model),
        hint="give a model.yaml, a checkpoint folder, a .gguf file, an .onnx file or a hub id such as org/name",
    )


def read_model_config(top: Section, folder: Path) -> ModelConfig:
    """Checks the content of a model.yaml that lies in `folder`."""
    refuse_remote_code(top)
    top.allow(_KEYS, _IN_QUANTIZE)
    model = read_source(top, folder)
    is_onnx = isinstance(model, OnnxFile)
    task = top.choice("task", TASKS, "graph" if is_onnx else "text-generation")
    if (task == "graph") != is_onnx:
        raise top.error(
            "task `graph` and a model `{onnx: file}` belong together", "task" if "task" in top else "model",
            hint="write `task: graph` with `model: {onnx: net.onnx}`, or another task with a checkpoint",
        )  # fmt: skip
    _refuse_keys_of_checkpoints(top, task)
    largest = _max_batch(top, task)
    _check_media(top, task, largest)
    return ModelConfig(
        model=model,
        task=task,
        dtype=top.choice("dtype", DTYPES, "float32"),
        quantize=read_quantization(top),
        keep_stored="quantize" not in top,
        max_sequence=(
            longest := top.whole("max_sequence", _longest(model), _LEAST_CACHE if generates(task) else 1)
        ),
        max_source=(most_source := _max_source(top, task, longest)),
        sequence_place=top.place("max_sequence"),
        max_batch=largest,
        auto_batch=top.data.get("max_batch") == "auto",
        max_requests=top.whole("max_requests", 4),
        drafts=_drafts(top),
        workload=_workload(top, task, longest, most_source, largest),
        dims=(sizes := read_sizes(top, is_onnx)).largest,
        exact=sizes.exact,
        inputs=read_constant_inputs(top, is_onnx),
        image_size=_image_size(top),
        samples=top.whole("samples", 1) if "samples" in top else None,
        tokenizer=read_tokenizer(top, model, folder),
        ignore_tensors=read_ignored(top, model),
        adapters=read_adapters(top, model, folder),
    )


def _refuse_keys_of_checkpoints(top: Section, task: str) -> None:
    """Refuse what an ONNX graph has by itself."""
    if task != "graph":
        return
    for key, instead in _FIXED_BY_ONNX.items():
        if key in top:
            raise top.error(f"an ONNX graph has {instead} of its own", key, hint=f"remove `{key}`")


def _drafts(top: Section) -> bool:
    """Whether tokens may be guessed; YAML reads `off` as false."""
    if top.data.get("drafts") is False:
        return False
    return top.choice("drafts", ("auto", "off"), "auto") == "auto"


def _longest(model: ModelSource) -> int:
    match model:
        case CheckpointFolder(known) | GgufModel(known) | RandomModel(known, _):
            return default_length(known)
        case HubModel() | OnnxFile():
            return LONGEST


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
    section.allow(("prompt", "generate", "batch", "drafted"))
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
    else:
        prompt = section.whole("prompt", min(32, max(1, max_sequence // 4) if answers else max_sequence))
        generate = section.whole("generate", min(96, max(1, max_sequence - prompt)))
        if task != "graph" and prompt + (generate if answers else 0) > max_sequence:
            needed = f"{prompt} + {generate} tokens" if answers else f"{prompt} tokens"
            raise top.error(
                f"a workload of {needed} is longer than max_sequence ({max_sequence})",
                "workload",
                hint="raise max_sequence or shorten the workload",
            )
    batch = _workload_batch(top, task, max_batch)
    return Workload(prompt, generate, batch, _drafted(top, section, task, batch))


def _drafted(top: Section, section: Section, task: str, batch: int) -> float:
    """The share of tokens that come true from a guess."""
    share = section.number("drafted", 0.0)
    if share > 1.0:
        raise section.error(
            f"expected a share of tokens from 0 to 1, found {share:g}", "drafted", hint="write `drafted: 0.3`"
        )
    reason = next(
        (
            text
            for holds, text in (
                (not generates(task), f"a model for {task} makes no tokens that could be guessed"),
                (not _drafts(top), "`drafts: off`: no tokens are guessed"),
                (
                    batch > 1 or top.data.get("max_batch") == "auto",
                    "tokens of several sequences are not guessed",
                ),
            )
            if share and holds
        ),
        None,
    )
    if reason is not None:
        raise section.error(reason, "drafted", hint="remove `drafted` from the workload")
    return share


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
