"""A cell of the matrix: its model, its devices, its ring, and what happens to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partc.balance.artifacts import read_artifacts
from partc.balance.by_hand import change_to
from partc.cli.main import run
from partc.config.model import load_model_config
from partc.config.placement import Range
from partc.config.sources import RandomModel
from partc.format.dtypes import Array
from partc.format.names import device_folders
from partc.format.role import source_role
from partc.frontend.source import random_network
from partc.planner.model.stages import devices_of
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.placing import Placing
from partc.runtime.client.request import Request
from tests.frontend.quantized.makers import awq, gptq, quantise_folder
from tests.matrix.axes import Cell
from tests.native.compiled import native_runner

OnToken = Callable[[object], None]
TOKENS = 14
_AT = 5
"""The token behind which something happens."""
_TEXT = "vocab_size: 120, bos_token_id: 1, eos_token_id: 2, pad_token_id: 0, max_position_embeddings: 64"
_LAYERS = "hidden_size: 64, intermediate_size: 64, num_attention_heads: 4"
_CONFIGS = {
    "text": f"model_type: llama, {_TEXT}, {_LAYERS}, num_hidden_layers: 4, num_key_value_heads: 2",
    "hybrid": f"model_type: qwen3_next, {_TEXT}, {_LAYERS}, num_hidden_layers: 4, head_dim: 16,"
    " num_key_value_heads: 2, num_experts: 0, linear_num_value_heads: 4, linear_num_key_heads: 2,"
    " linear_key_head_dim: 16, linear_value_head_dim: 16,"
    " layer_types: [linear_attention, full_attention, linear_attention, full_attention]",
    "encoder": f"model_type: bert, {_TEXT}, {_LAYERS}, num_hidden_layers: 4, num_labels: 3",
}
_DEVICE = (
    "{{target: {target}, flops: {speed}FLOP/s, memory_bandwidth: {speed}B/s, memory: 64 MB, threads: 1}}"
)
_FAST, _SLOW = "8 G", "1 M"
"""A plan leaves a source that is slow, and returns to it if it must; devices that are slow share their work."""


def _model(kind: str, folder: Path) -> str:
    """The text of model.yaml, without what the weights are."""
    work = "workload: {prompt: 8, generate: 8}\nmax_requests: 4\n"
    if kind == "source":
        from tests.families.sources import save_family as save_source

        config = save_source("t5", folder / "checkpoint", 1)
        return (
            f"model: {folder / 'checkpoint'}\ntask: {config.task}\nmax_source: 16\nmax_sequence: 32\n{work}"
        )
    if kind == "picture":
        from tests.families.media import save_family as save_media

        media = save_media("llava", folder / "checkpoint")
        size = "" if media.image_size is None else f"image_size: {list(media.image_size)}\n"
        return f"model: {folder / 'checkpoint'}\ntask: {media.task}\nmax_sequence: 64\n{size}{work}"
    task = "text-classification" if kind == "encoder" else "text-generation"
    tokens = "" if kind == "encoder" else work
    return f"model: {{config: {{{_CONFIGS[kind]}}}, seed: 4}}\ntask: {task}\nmax_sequence: 48\n{tokens}"


_METHODS = {"stored": awq(32), "stored8": gptq(8, 16, symmetric=True)}
"""Weights that a checkpoint has → who made it."""


def _quantised(text: str, folder: Path, weights: str) -> str:
    """The text of a model.yaml for the same model, quantised by others; what it names is saved first."""
    checkpoint = folder / "checkpoint"
    if not checkpoint.is_dir():
        config = load_model_config(_written(folder / "plain.yaml", text))
        assert isinstance(config.model, RandomModel)
        made = random_network({"config": dict(config.model.config), "seed": 4}, config.task, torch.float32)
        made.save_pretrained(checkpoint)
    quantise_folder(checkpoint, folder / "quantised", _METHODS[weights])
    lines = text.splitlines(keepends=True)
    return "".join(
        [f"model: {folder / 'quantised'}\n", *(line for line in lines if not line.startswith("model:"))]
    )


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _weights(cell: Cell) -> str:
    precision = "stored" if cell["weights"] in _METHODS else cell["weights"]
    is_kept = precision.startswith(("int", "stored"))
    if cell["cache"] == "int8":
        weights = f"weights: {precision}, " if is_kept else ""
        quantize = f"quantize: {{{weights}cache: int8}}\n"
    else:
        quantize = f"quantize: {precision}\n" if is_kept else ""
    return quantize + ("dtype: float16\n" if cell["weights"] == "float16" else "")


def _devices(cell: Cell) -> str:
    names = ["a"] if cell["split"] == "one" else ["a", "b", "c"]
    slow = {"returns": "a", "group": "abc"}.get(cell["split"], "")
    own = "".join(
        f"  {name}: {_DEVICE.format(target=cell['target'], speed=_SLOW if name in slow else _FAST)}\n"
        for name in names
    )
    wishes = {"lost": "survive: one\n", "moved": "overlap: 1\n"}.get(cell["life"], "")
    if cell["split"] == "returns":
        wishes += "keep: prompt+answer\n"
    links = "links: {default: {bandwidth: 1 Gbit/s, latency: 0.2 ms}}\n" if len(names) > 1 else ""
    return f"source: a\n{wishes}devices:\n{own}{links}"


_STRATEGY = {"one": "optimal", "chain": "even", "returns": "optimal", "group": "optimal-groups"}


def compiled(cell: Cell, folder: Path) -> int:
    """Compile a cell into `folder`/build; the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _model(cell["model"], folder)
    if cell["weights"] in _METHODS:
        text = _quantised(text, folder, cell["weights"])
    (folder / "model.yaml").write_text(text + _weights(cell))
    (folder / "devices.yaml").write_text(_devices(cell))
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    return run(["compile", *files, "--strategy", _STRATEGY[cell["split"]], "-o", str(folder / "build")])


def split_of(build: Path) -> str:
    """How a build is split: a value of that axis."""
    stages = source_role(build).placement.stages["prefill"]
    devices = [stage.devices for stage in stages]
    if any(len(names) > 1 for names in devices):
        return "group"
    if len(devices) > len(set(devices)):
        return "returns"
    return "chain" if len(devices) > 1 else "one"


# -- requests


def _inputs(build: Path, number: int) -> tuple[list[list[int]], dict[str, Array]]:
    """The prompt and the tensors of a request; each number has its own."""
    role = source_role(build)
    rng = np.random.default_rng(number)
    rows = [role.model.placeholder_token] * role.model.placeholders if role.model.placeholder_token else []
    prompt = [5, 6, *rows, *(int(token) for token in rng.integers(3, 90, 5 + 2 * number))]
    sizes = {**role.dims, "batch": 1}
    tensors = {
        name: rng.standard_normal([sizes[s] if isinstance(s, str) else s for s in kind.shape]).astype(
            kind.dtype
        )
        for name, kind in role.inputs.items()
        if kind.dtype.startswith("float")
    }
    return [prompt], tensors


def _submit(client: Client, build: Path, number: int, on_token: OnToken | None = None) -> Request:
    prompts, tensors = _inputs(build, number)
    if not source_role(build).model.generates:
        return client.submit(prompts)
    return client.submit(
        prompts, inputs=tensors, max_new_tokens=TOKENS, ignore_eos=True, on_token=on_token, reuse=True
    )


def _told(request: Request) -> Any:
    """What a client gets: tokens, or rounded outputs."""
    result = request.result()
    if result.tokens:
        return tuple(map(tuple, result.tokens))
    return {name: np.asarray(array, np.float32).round(2).tolist() for name, array in result.outputs.items()}


def _happen(cell: Cell, build: Path, ring: LocalRing, client: Client) -> Placing | None:
    """What a cell's life is; a move under way."""
    if cell["life"] != "moved":
        os.kill(ring.pids[source_role(build).ring[1]], signal.SIGKILL)
        return None
    artifacts = read_artifacts(build)
    owner = devices_of(artifacts.stages)
    piece = next(piece for piece in artifacts.pieces if len(piece.holders) > 1)
    other = min(piece.holders - {owner[piece.first]})
    span = Range("submodules", piece.first, piece.last, "")
    return client.place(artifacts.place(change_to(artifacts, artifacts.stages, span, other).after))


def _runners(cell: Cell, build: Path) -> dict[str, Any]:
    """What runs the devices."""
    if cell["runner"] == "python":
        return {"runner": "python"}
    return {"runners": {folder.name: [str(native_runner())] for folder in device_folders(build)}}


def answers(cell: Cell, build: Path) -> list[Any]:
    """What the requests of a cell get, while something happens to the ring."""
    count, life = (4 if cell["requests"] == "four" else 1), cell["life"]
    seen, moves = 0, list[Placing | None]()
    with (
        launch_local(build, restart=life == "killed", **_runners(cell, build)) as ring,
        ring.client() as client,
    ):

        def on_token(_: object) -> None:
            nonlocal seen
            seen += 1
            if seen == _AT and life != "quiet":
                moves.append(_happen(cell, build, ring, client))

        if life != "quiet" and not source_role(build).model.generates:
            moves.append(_happen(cell, build, ring, client))
        requests = [_submit(client, build, number, None if number else on_token) for number in range(count)]
        told = [_told(request) for request in requests]
        assert life == "quiet" or moves, "nothing has happened"
        for move in filter(None, moves):
            move.result()
        return told


def reference(cell: Cell) -> Cell:
    """The same model, weights and target, uncut, undisturbed, in Python.

    In int8 the activations of a row are rounded together, and a share of a block has some of them: groups of such
    models are compared with themselves, undisturbed.
    """
    split = "group" if cell["split"] == "group" and cell["weights"] == "int8" else "one"
    return {**cell, "split": split, "runner": "python", "life": "quiet"}


class Matrix:
    """Cells that are played, and the answers of uncut models, each computed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, ...], list[Any]] = {}

    def expected(self, cell: Cell) -> Sequence[Any]:
        """The answers of the uncut model."""
        own = {**reference(cell), "requests": "four"}
        key = tuple(own.values())
        if key not in self._known:
            folder = self._folder / "-".join(key)
            assert compiled(own, folder) == 0
            self._known[key] = [
                answer for number in range(4) for answer in _alone(own, folder / "build", number)
            ]
        return self._known[key][: 4 if cell["requests"] == "four" else 1]

    def played(self, cell: Cell, folder: Path) -> Sequence[Any] | None:
        """The answers of a cell; None: it was refused."""
        if compiled(cell, folder) != 0:
            return None
        assert split_of(folder / "build") == cell["split"]
        return answers(cell, folder / "build")


def _alone(cell: Cell, build: Path, number: int) -> list[Any]:
    with launch_local(build, runner="python") as ring, ring.client() as client:
        return [_told(_submit(client, build, number))]
