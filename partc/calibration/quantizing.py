"""A checkpoint and texts → a quantised checkpoint, layer by layer.

Layers are quantised from the first to the last, and each is measured with what the quantised ones before it make: so
it makes up for their errors as well. Beside the network in its own type, one layer is in memory as float32.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partc.atomic import flush_tree, replace
from partc.calibration import BLOCKS, INSTEAD, TOKENS
from partc.calibration.layers import (
    Call,
    Products,
    calls_of,
    check_alike,
    first_input,
    layers_of,
    run_network,
)
from partc.calibration.packed import write_folder
from partc.calibration.rounding import Rounded, rounded
from partc.calibration.texts import read_windows
from partc.config.model import load_model_config
from partc.config.sources import CheckpointFolder, HubModel
from partc.errors import ModelError, UserError
from partc.frontend.folder import tokenizer_folder
from partc.frontend.load import load_network
from partc.frontend.source import Source, open_source
from partc.ir.weight_formats import INT4
from partc.pipeline.contract import Progress, no_progress

TASKS = ("text-generation", "text-classification", "feature-extraction")
"""Tasks whose models read nothing but a text."""
_ROUTERS = {"gate", "router", "shared_expert_gate"}
"""Last words of the names of modules that choose experts: they keep their precision, as in `quantize-weights`."""


@dataclass(frozen=True)
class Quantized:
    """What was done."""

    folder: Path
    tokens: int
    """Tokens that the inputs were measured on."""
    matrices: int
    weights: int
    """Weights that have 4 bits now."""
    others: int
    """Weights that keep their type."""
    error: float
    """Squared error of the outputs of the matrices over the squared outputs, on these texts; the mean over matrices."""
    by_itself: float
    """The same with `quantize: int4`, which rounds each weight by itself."""
    left: tuple[str, ...]
    """Matrices of the layers whose rows are not whole blocks: they keep their type."""


def quantize_checkpoint(
    model: str,
    texts: Path,
    folder: Path,
    *,
    block: int = BLOCKS[0],
    tokens: int = TOKENS,
    progress: Progress = no_progress,
) -> Quantized:
    """Write a checkpoint whose products are in 4 bits, such that it does to texts what the original does.

    Args:
        model: a checkpoint folder, a hub id, or a model.yaml with either.
        texts: a file of plain text of the kind that the model is for.
        folder: the place of the new checkpoint; there must be nothing.
        block: weights of a row that share a scale, one of `BLOCKS`.
        tokens: tokens of the text that are used at most.
        progress: called during the work.

    Raises:
        UserError: the model is none that texts can quantise, or the text is too short; the folder is there.
    """
    if folder.exists():
        raise UserError("there is something already", where=str(folder), hint="give a new name, or remove it")
    source, network, tokenizer = _open(model, progress)
    assert source.folder is not None
    longest = int(getattr(network.config.get_text_config(), "max_position_embeddings", 0) or 2**31)
    windows = read_windows(texts, tokenizer, longest, tokens)
    matrices: dict[str, Rounded] = {}
    measured: list[tuple[float, float]] = []
    left: list[str] = []
    with torch.no_grad():
        for name, found, errors in _rounded(network, windows, block, progress):
            if found is None:
                left.append(name)
            else:
                matrices[name] = found
                measured.append(errors)
    if not matrices:
        raise ModelError(
            f"its layers have no linear modules whose rows are whole blocks of {block}", where=model,
            hint="a lesser --block may fit; other kinds of modules (GPT-2's) have `quantize: int4` in model.yaml",
        )  # fmt: skip
    progress("write the checkpoint", 0, 1)
    with _draft(folder) as draft:
        write_folder(network, matrices, block, source.folder, draft)
    count = sum(found.values.numel() for found in matrices.values())
    total = sum(weight.numel() for weight in network.parameters())
    return Quantized(
        folder, sum(window.numel() for window in windows), len(matrices), count, total - count,
        math.fsum(error for error, _ in measured) / len(measured),
        math.fsum(by_itself for _, by_itself in measured) / len(measured), tuple(left),
    )  # fmt: skip


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is to be, which takes its place when all is written, and else is removed."""
    draft = folder.with_name(f".{folder.name}-{os.urandom(4).hex()}.new")
    draft.mkdir(parents=True)
    try:
        yield draft
        flush_tree(draft)
        replace(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _open(model: str, progress: Progress) -> tuple[Source, Any, Path]:
    """The source, its network with its weights in the checkpoint's own type, and the folder of its tokenizer.

    Raises:
        UserError: it cannot be calibrated.
    """
    progress("read the checkpoint", 0, 1)
    config = load_model_config(model)
    if not isinstance(config.model, CheckpointFolder | HubModel):
        raise UserError(
            "calibration takes a checkpoint in a folder or on the hub, with a tokenizer", where=model,
            hint="files of llama.cpp, ONNX graphs and models from a config have `quantize:` in model.yaml",
        )  # fmt: skip
    if config.task not in TASKS:
        raise UserError(
            f"a model for {config.task} reads more than a text", where=model,
            hint=INSTEAD,
        )  # fmt: skip
    source = open_source(config.model)
    if source.quantized is not None:
        raise UserError(
            f"it is quantised already, by {source.quantized.method.name}", where=str(source.folder),
            hint="compile it as it is, or give the checkpoint that it was made from",
        )  # fmt: skip
    assert source.folder is not None
    dtype = getattr(source.config, "dtype", None) or torch.float32
    tokenizer = source.folder if config.tokenizer is None else tokenizer_folder(config.tokenizer)
    return source, load_network(source, source.folder, config, dtype), tokenizer


Step = tuple[str, Rounded | None, tuple[float, float]]
"""Name of a matrix, what became of it (None: its rows are not whole blocks), and the errors of both ways."""


def _rounded(network: Any, windows: Sequence[Tensor], block: int, progress: Progress) -> Iterator[Step]:
    """The matrices of all layers, and of a head of its own, in the order in which they are done."""
    place, layers = layers_of(network)
    calls = calls_of(network, layers, windows[0])
    check_alike(calls, calls_of(network, layers, windows[-1]))
    hidden = [first_input(network, layers[0], window) for window in windows]
    for number, (layer, call) in enumerate(zip(layers, calls, strict=True)):
        progress("quantise layers", number, len(layers))
        kinds = {name: weight.dtype for name, weight in layer.state_dict().items()}
        modules = _linear(layer, f"{place}.{number}")
        types = {name: module.weight.dtype for name, module in modules.items()}
        layer.float()
        wide = _wide(call)
        with Products(modules) as products:
            for each in hidden:
                wide.run(layer, each.float())
        yield from _each(modules, types, products.sums, block)
        hidden = [wide.run(layer, each.float()).to(each.dtype) for each in hidden]
        _narrow(layer, kinds)
    progress("quantise layers", len(layers), len(layers))
    head = network.get_output_embeddings()
    if isinstance(head, nn.Linear) and head.weight is not network.get_input_embeddings().weight:
        name = next(name for name, module in network.named_modules() if module is head)
        with Products({name: head}) as products:
            for window in windows:
                run_network(network, window)
        yield from _each({name: head}, {name: head.weight.dtype}, products.sums, block)


def _each(
    modules: Mapping[str, nn.Linear],
    types: Mapping[str, torch.dtype],
    sums: Mapping[str, Tensor],
    block: int,
) -> Iterator[Step]:
    for name, module in modules.items():
        weight = module.weight.detach().float()
        if weight.shape[1] % block:
            yield name, None, (0.0, 0.0)
            continue
        gram = sums.get(name)
        if gram is None:  # an expert that no token of the text was sent to
            gram = torch.zeros(weight.shape[1], weight.shape[1])
        with _one_thread():
            found = rounded(weight, gram, block, types[name])
        errors = _error(weight, found.matrix(), gram), _error(weight, _by_itself(weight, block), gram)
        module.weight.data = found.matrix().to(module.weight.dtype)
        yield name, found, errors


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on this thread alone: steps of microseconds are slower on several."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


def _by_itself(weight: Tensor, block: int) -> Tensor:
    """The matrix that `quantize: int4` makes, each weight rounded by itself."""
    return torch.from_numpy(INT4.dequantize(*INT4.quantize_with_scales(weight.numpy(), block)))


def _error(weight: Tensor, found: Tensor, gram: Tensor) -> float:
    """The squared error of outputs over the squared outputs; 0 where there are none."""
    lost = weight - found
    whole = float(((weight @ gram) * weight).sum())
    return float(((lost @ gram) * lost).sum()) / whole if whole > 0 else 0.0


def _linear(layer: nn.Module, place: str) -> dict[str, nn.Linear]:
    """The products of a layer, by their names in the network."""
    return {
        f"{place}.{name}": module
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] not in _ROUTERS
    }


def _wide(call: Call) -> Call:
    """The same with floats of 32 bits."""

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.float()
        return tuple(map(widened, value)) if isinstance(value, tuple) else value

    named = {name: widened(value) for name, value in call.named.items()}
    return Call(tuple(map(widened, call.others)), named, call.by_name)


def _narrow(layer: nn.Module, kinds: Mapping[str, torch.dtype]) -> None:
    """Give each tensor of a layer its own type back."""
    for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
        if name in kinds:
            tensor.data = tensor.data.to(kinds[name])
