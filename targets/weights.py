"""Weights of a device as safetensors files: what every target with weights beside its code does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.bundle.safetensors_file import Entry, write_safetensors
from partc.bundle.tensors import open_tensors, read_weight
from partc.errors import InternalError
from partc.ir.graph import ModelInfo, Weight
from partc.ir.weights import WeightExpr
from partc.pipeline.contract import Progress


@dataclass(frozen=True)
class Placed:
    """Where the elements of a weight lie."""

    file: str
    """A safetensors file, relative to the device's folder."""
    entry: Entry


_Key = tuple[WeightExpr | None, str | None]
"""What makes two weights the same bytes."""


def write_weights(
    weights: Mapping[str, Iterable[Weight]], info: ModelInfo, folder: Path, progress: Progress
) -> dict[Weight, Placed]:
    """Stream the weights of one device's graphs into `weights/<graph>.safetensors`; returns where each lies.

    `weights`: name of a graph → what it reads. Weights with the same source are stored once, in the file of the
    first graph that has them; a graph without weights of its own gets no file. One tensor is in memory at a time.

    Raises:
        ModelError: the checkpoint lacks a tensor, or it has another shape.
    """
    wanted = {graph: list(own) for graph, own in weights.items()}
    stored: dict[_Key, Placed] = {}
    for graph, own in wanted.items():
        fresh: dict[_Key, Weight] = {}
        for weight in own:
            if _key(weight) not in stored:
                fresh.setdefault(_key(weight), weight)
        if fresh:
            file = f"weights/{graph}.safetensors"
            entries = _write_file(list(fresh.values()), info, folder / file, progress)
            stored |= {key: Placed(file, entries[weight.name]) for key, weight in fresh.items()}
    return {weight: stored[_key(weight)] for own in wanted.values() for weight in own}


def _key(weight: Weight) -> _Key:
    return weight.source, weight.dtype


def _write_file(
    weights: Sequence[Weight], info: ModelInfo, path: Path, progress: Progress
) -> dict[str, Entry]:
    path.parent.mkdir(parents=True, exist_ok=True)
    by_name, read = {weight.name: weight for weight in weights}, open_tensors(info)
    placed = write_safetensors(
        path, [_entry(weight) for weight in weights],
        lambda name: read_weight(by_name[name], read, info),
        lambda done, total: progress(f"write {path.name}", done, total),
    )  # fmt: skip
    return {entry.name: entry for entry in placed}


def _entry(weight: Weight) -> Entry:
    if (
        weight.dtype is None
        or weight.shape is None
        or not all(isinstance(size, int) for size in weight.shape)
    ):
        raise InternalError(f"weight %{weight.name} has no fixed size")
    return Entry(weight.name, weight.dtype, tuple(int(size) for size in weight.shape))
