"""Weights of a device as safetensors files: what every target with weights beside its code does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partc.bundle.streaming import stream_weights
from partc.bundle.tensors import open_tensors
from partc.errors import InternalError
from partc.format.safetensors import Entry, write_safetensors
from partc.ir.graph import ModelInfo, Weight
from partc.ir.weights import Array, WeightExpr, stored
from partc.pipeline.contract import NO_STORE, Progress, TensorStore


@dataclass(frozen=True)
class Placed:
    """The place of a weight's elements in the file."""

    file: str
    """A safetensors file, relative to the device's folder."""
    entry: Entry


_Key = tuple[WeightExpr | None, str | None]
"""The key of a weight's bytes: its source but for the last shape, and its type."""


def write_weights(
    weights: Mapping[str, Iterable[Weight]],
    info: ModelInfo,
    folder: Path,
    progress: Progress,
    store: TensorStore = NO_STORE,
) -> dict[Weight, Placed]:
    """Stream the weights of one device's graphs into `weights/<graph>.safetensors`; returns where each lies.

    `weights`: name of a graph → what it reads. Weights with the same source are stored once, in the file of the
    first graph that has them; a graph without weights of its own gets no file. What `store` has is copied, the rest
    is computed a few rows at a time.

    Raises:
        ModelError: the checkpoint lacks a tensor, or it has another shape.
    """
    wanted = {graph: list(own) for graph, own in weights.items()}
    files = _files(wanted)
    total, done = sum(weight.bytes({}) for own in files.values() for weight in own), 0
    read = open_tensors(info)
    places: dict[_Key, Placed] = {}
    for file, own in files.items():
        report = _shifted(progress, done, total)
        entries = _write_file(
            own, folder, file, lambda names: stream_weights(names, read, info), report, store
        )
        places |= {_key(weight): Placed(file, entry) for weight, entry in entries.items()}
        done += sum(entry.bytes for entry in entries.values())
    return {weight: _viewed(places[_key(weight)], weight) for own in wanted.values() for weight in own}


def _files(wanted: Mapping[str, Sequence[Weight]]) -> dict[str, list[Weight]]:
    """File → what it stores: the weights of one graph that no graph before it has."""
    files: dict[str, list[Weight]] = {}
    known: set[_Key] = set()
    for graph, own in wanted.items():
        fresh: dict[_Key, Weight] = {}
        for weight in own:
            if _key(weight) not in known:
                fresh.setdefault(_key(weight), weight)
        known.update(fresh)
        if fresh:
            files[f"weights/{graph}.safetensors"] = list(fresh.values())
    return files


def _key(weight: Weight) -> _Key:
    return None if weight.source is None else stored(weight.source), weight.dtype


def _viewed(placed: Placed, weight: Weight) -> Placed:
    """The same bytes in the weight's own shape: a table of tokens, and the head that shares it in blocks."""
    return replace(placed, entry=replace(placed.entry, shape=_entry(weight).shape))


def _shifted(progress: Progress, before: int, total: int) -> Callable[[int, int], None]:
    """The progress of one file, behind `before` bytes of the files before it."""
    return lambda done, _: progress("write weights", before + done, total)


def _write_file(
    weights: Sequence[Weight],
    folder: Path,
    file: str,
    stream: Callable[[Sequence[Weight]], Iterator[tuple[str, Array]]],
    report: Callable[[int, int], None],
    store: TensorStore,
) -> dict[Weight, Entry]:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    by_name = {weight.name: weight for weight in weights}
    placed = write_safetensors(
        folder / file, [_entry(weight) for weight in weights],
        lambda names: stream([by_name[name] for name in names]), report,
        lambda target, entry: store.copy(by_name[entry.name], target, entry.offset),
    )  # fmt: skip
    for entry in placed:
        store.note(by_name[entry.name], file, entry.offset)
    return {by_name[entry.name]: entry for entry in placed}


def _entry(weight: Weight) -> Entry:
    if (
        weight.dtype is None
        or weight.shape is None
        or not all(isinstance(size, int) for size in weight.shape)
    ):
        raise InternalError(f"weight %{weight.name} has no fixed size")
    return Entry(weight.name, weight.dtype, tuple(int(size) for size in weight.shape))
