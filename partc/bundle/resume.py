"""Devices of an interrupted compile that are finished are taken over instead of made again.

A record `<partial>/.parts/<device>.json` is written when a device's files are: the hash of what they were
made from, what the target returned, and the hash of every file. It is used only where all of them still
hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import partc
from partc.bundle.hashing import canonical_json, hash_data, hash_folder
from partc.bundle.tensors import fingerprint
from partc.bundle.workspace import RECORDS
from partc.ir.graph import ModelInfo, Module, Part
from partc.ir.text import print_module
from partc.ir.weights import leaves
from partc.pipeline.contract import Artifact, Target


def inputs_hash(part: Part, info: ModelInfo, target: Target, extra: Sequence[tuple[str, int, int]]) -> str:
    """Hash of all that the files of one device depend on; checkpoint files count by name, size and time."""
    weights = [weight for graph in part.graphs for weight in graph.weights()]
    names = [leaf.file for weight in weights if weight.source for leaf in leaves(weight.source)]
    return hash_data({
        "version": partc.__version__,
        "target": [target.name, repr(target)],
        "graphs": [print_module(Module(info, graph)) for graph in part.graphs],
        "checkpoint": fingerprint(info, names),
        "extra": list(extra),
    })  # fmt: skip


def record(workspace: Path, device: str, inputs: str, artifact: Artifact) -> dict[str, Any]:
    """Note that a device's files are finished; returns the hashes of its files."""
    files = hash_folder(workspace / "devices" / device)
    path = workspace / RECORDS / f"{device}.json"
    data = {"inputs": inputs, "artifact": asdict(artifact), "files": files}
    path.with_suffix(".tmp").write_text(canonical_json(data), encoding="utf-8")
    path.with_suffix(".tmp").replace(path)
    return files


def take_over(leftovers: Sequence[Path], workspace: Path, device: str, inputs: str) -> Artifact | None:
    """Copy the files of `device` from a leftover that made them from equal inputs; None: there is none."""
    for leftover in leftovers:
        found = _read(leftover / RECORDS / f"{device}.json")
        source, target = leftover / "devices" / device, workspace / "devices" / device
        if found is None or found.get("inputs") != inputs or not source.is_dir():
            continue
        # A copy, never a hard link: onnx refuses external data with several links.
        shutil.copytree(source, target, symlinks=True)
        if hash_folder(target) == found["files"]:
            return Artifact(**found["artifact"])
        shutil.rmtree(target)
    return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
