"""A small model of every task, compiled for two devices that have copies of each other's work beside their border."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from partc.balance.artifacts import Artifacts, read_artifacts
from partc.cli.main import run
from partc.format.dtypes import Array
from partc.format.role import source_role
from partc.format.tasks import INPUT_IDS
from partc.planner.model.stages import devices_of

DEVICES = """
source: a
overlap: 1
devices:
  a: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
  b: {target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GiB, threads: 1}
links: {default: {bandwidth: 1 Gbit/s, latency: 1 ms}}
"""
_TEXT = "vocab_size: 97, bos_token_id: 1, eos_token_id: 2, pad_token_id: 0"
_LAYERS = "hidden_size: 32, intermediate_size: 48, num_attention_heads: 4"
_LLAMA = f"model_type: llama, {_TEXT}, {_LAYERS}, num_hidden_layers: 3, num_key_value_heads: 2"
_BERT = f"model_type: bert, {_TEXT}, {_LAYERS}, num_hidden_layers: 3, num_labels: 3"
_VIT = f"model_type: vit, {_LAYERS}, num_hidden_layers: 3, image_size: 32, patch_size: 8, num_labels: 3"


def _config(fields: str, task: str, more: str = "") -> Callable[[Path], str]:
    """A model of random weights, from a config alone."""
    return lambda _: f"model: {{config: {{{fields}}}, seed: 1}}\ntask: {task}\n{more}"


def _source(family: str, more: str = "") -> Callable[[Path], str]:
    """A checkpoint whose answers depend on the source."""

    def make(folder: Path) -> str:
        from tests.families.sources import save_family

        config = save_family(family, folder / "checkpoint", 1)
        return f"model: {folder / 'checkpoint'}\ntask: {config.task}\n{more}{_ANSWER}"

    return make


def _media(family: str) -> Callable[[Path], str]:
    """A checkpoint with a preprocessor beside it."""

    def make(folder: Path) -> str:
        from tests.families.media import save_family

        config = save_family(family, folder / "checkpoint")
        size = "" if config.image_size is None else f"image_size: {list(config.image_size)}\n"
        return f"model: {folder / 'checkpoint'}\ntask: {config.task}\nmax_sequence: 64\n{size}{_WORK}"

    return make


def _graph(folder: Path) -> str:
    """A chain of products with a value that skips one."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16), np.float32) for _ in range(4)]
    nodes = [onnx.helper.make_node("MatMul", [f"h{k}", f"w{k}"], [f"h{k + 1}"]) for k in range(4)]
    nodes.append(onnx.helper.make_node("Add", ["h4", "h2"], ["y"]))
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["batch", 16]) for name in ("h0", "y")]
    tensors = [onnx.numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    opset = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "net.onnx")
    return "model: {onnx: net.onnx}\ntask: graph\ndims: {batch: 2}\n"


_WORK = "workload: {prompt: 8, generate: 8}\n"
_ANSWER = f"max_sequence: 32\n{_WORK}"
_MODELS: Mapping[str, Callable[[Path], str]] = {
    "text": _config(_LLAMA, "text-generation", _ANSWER),
    "text-to-text": _source("t5", "max_source: 16\n"),
    "speech": _source("whisper"),
    "picture-in-text": _media("llava"),
    "sound-in-text": _media("qwen2_audio"),
    "classifier": _config(_BERT, "text-classification", "max_sequence: 32\n"),
    "encoder": _config(_BERT, "feature-extraction", "max_sequence: 32\n"),
    "pictures": _config(_VIT, "image-classification"),
    "graph": _graph,
}
"""Task, in short → what writes its files into a folder; the text of model.yaml."""
TASKS = tuple(_MODELS)
GENERATING = TASKS[:5]
KEEPING = TASKS[1:5]
"""Tasks whose models keep what the first step makes of a source."""


@dataclass(frozen=True)
class Made:
    """A compiled model."""

    task: str
    folder: Path
    """A folder with model.yaml, devices.yaml and build."""

    @property
    def build(self) -> Path:
        """The build."""
        return self.folder / "build"

    @property
    def artifacts(self) -> Artifacts:
        """Its pieces."""
        return read_artifacts(self.build)

    @property
    def movable(self) -> list[tuple[range, str]]:
        """Sub-modules that both devices have, each with the device that does not compute them as compiled."""
        artifacts = self.artifacts
        owner = devices_of(artifacts.stages)
        shared = [piece for piece in artifacts.pieces if len(piece.holders) > 1]
        return [(piece.indices, min(piece.holders - {owner[piece.first]})) for piece in shared]


def make(task: str, folder: Path) -> Made:
    """Compile the model of a task in a folder of its own."""
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(_MODELS[task](folder))
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "--strategy", "even", "-o", str(folder / "build")]) == 0
    return Made(task, folder)


def inputs_of(made: Made) -> dict[str, Array]:
    """The tensors of one request, random ones; token ids are its prompt."""
    role = source_role(made.build)
    rng = np.random.default_rng(3)
    sizes = {**role.dims, "batch": 1, "sequence": 5}
    given: dict[str, Array] = {}
    if role.takes_tokens:
        rows = [role.model.placeholder_token] * role.model.placeholders
        given[INPUT_IDS] = np.array([[5, 6, *rows, *rng.integers(3, 90, 4)]], np.int64)
    for name, kind in role.inputs.items():
        shape = [sizes[size] if isinstance(size, str) else size for size in kind.shape]
        if kind.dtype.startswith("float"):
            given[name] = rng.standard_normal(shape).astype(kind.dtype)
    return given
