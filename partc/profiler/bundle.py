"""The bundles of a profile: a folder per device with all that is to be measured there.

They are ordinary ones (docs/bundle.md), so that engines, keys and checks are those of a real run; but every
device is its own source, so that the client may ask each of them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from partc.bundle.hashing import canonical_json, hash_data, hash_folder
from partc.config.devices import DeviceConfig, DevicesConfig
from partc.errors import BundleError, InternalError
from partc.ir.graph import STEP_INPUTS, Graph, ModelInfo, Part, State, Value
from partc.ir.types import BY_SHORT
from partc.pipeline.contract import Artifact, Progress
from partc.pipeline.registry import load_target
from partc.profiler.graphs import LONGEST_PROMPT, VOCABULARY, probe_graphs, write_numbers
from partc.profiler.work import WORK_FILE, Work, save_work
from partc.runtime.manifest import FORMAT, seal
from partc.runtime.measure.ring import HEAD, LOGITS, PAYLOAD, PROMPT, SENT, TOKEN, TOUCH, TOUCHED
from partc.runtime.shell.keys import make_keys

Json = dict[str, Any]
CONTENTS = frozenset({"devices", "keys", WORK_FILE, "devices.yaml", "times.json"})


def write_profile_bundles(
    folder: Path,
    work: Work,
    devices: DevicesConfig,
    model: tuple[ModelInfo, Sequence[Graph]] | None,
    progress: Progress,
) -> None:
    """Write the bundles of all devices, their keys and work.json; what an earlier profile left is replaced.

    Raises:
        UserError: a target cannot run a graph.
        ModelError: the checkpoint lacks a tensor.
    """
    for name in ("devices", "keys"):
        shutil.rmtree(folder / name, ignore_errors=True)
    plain: dict[str, Json] = {}
    with tempfile.TemporaryDirectory() as scratch:
        probes = write_numbers(Path(scratch), work.sizes), probe_graphs(work.sizes)
        for name in work.devices:
            place = folder / "devices" / name
            place.mkdir(parents=True)
            plain[name] = _emit(
                place, work, devices.devices[name], [probes, *([model] if model else [])], progress
            )
    # Where the devices are does not make another profile: a device may move between two measurements.
    plan_id = hash_data(plain)
    for name, facts in plain.items():
        endpoints = {other: devices.devices[other].address for other in work.devices}
        manifest = seal({**facts, "plan_id": plan_id, "endpoints": endpoints})
        (folder / "devices" / name / "manifest.json").write_text(canonical_json(manifest), encoding="utf-8")
    make_keys(folder, work.devices, *work.devices)
    save_work(work, folder)


def _emit(
    place: Path,
    work: Work,
    device: DeviceConfig,
    groups: Sequence[tuple[ModelInfo, Sequence[Graph]]],
    progress: Progress,
) -> Json:
    """Write the files of one device; its manifest without plan id and addresses."""
    target = load_target(device.target, device.target_options)
    artifacts = []
    values: dict[str, Json] = {}
    for info, graphs in groups:
        for graph in graphs:
            values.update(_types([*graph.inputs, *graph.outputs]))
            # One at a time, as they are measured, each in its own folder: graphs of one part may share files.
            part = Part(device.name, target.lower([graph], info), {}, device.target)
            (place / graph.name).mkdir()
            artifacts.append(_inside(graph.name, target.emit(part, info, place / graph.name, progress)))
    info = groups[-1][0]
    return {
        **_model_facts(info, work),
        "device": device.name,
        "source": device.name,
        "target": device.target,
        "ring": list(work.devices),
        "values": {**_described(values), TOKEN: {"dtype": "int64", "shape": ["batch"]}},
        "submodules": [item for artifact in artifacts for item in artifact.submodules],
        "engine": _joined([artifact.engine for artifact in artifacts]),
        "programs": dict.fromkeys(("prefill", "decode"), _program()),
        "peers": {"receive": [], "send": []},
        "memory": {"budget_bytes": None, "weights_bytes": 0, "state_bytes": 0, "peak_bytes": None},
        "toolkit": artifacts[-1].toolkit,
        "files": hash_folder(place),
    }


def _inside(folder: str, artifact: Artifact) -> Artifact:
    """The same files as seen from the folder above `folder`."""
    moved = [
        {
            **item,
            "file": f"{folder}/{item['file']}",
            "weights": [f"{folder}/{file}" for file in item["weights"]],
        }
        for item in artifact.submodules
    ]
    return replace(artifact, submodules=moved)


def _joined(engines: Sequence[Json]) -> Json:
    """The `engine` of all artifacts of a target: what its options say of sub-modules, of those of all."""
    options: Json = {}
    for engine in engines:
        for key, value in engine["options"].items():
            options[key] = {**options.get(key, {}), **value} if isinstance(value, dict) else value
    return {**engines[-1], "options": options}


def _described(values: Mapping[str, Json]) -> dict[str, Json]:
    """Those that a manifest must describe."""
    return {name: value for name, value in values.items() if name not in STEP_INPUTS}


def _program() -> str:
    """The ring of one device (`partc.runtime.measure.ring`), so that the manifest is whole by itself."""
    runs = ((TOUCH, "length", TOUCHED), (PAYLOAD, PROMPT, SENT), (HEAD, SENT, LOGITS))
    lines = [f"run {name} ({given}) -> ({made})" for name, given, made in runs]
    return "\n".join([*lines, f"sample {LOGITS} -> {TOKEN}", f"emit {TOKEN}"])


def _model_facts(info: ModelInfo, work: Work) -> Json:
    batches = [task.dims.get("batch", 1) for task in work.tasks]
    sequences = [task.dims.get("sequence", 1) for task in work.tasks]
    most = {
        **info.dims,
        "batch": max([info.dims.get("batch", 1), *batches]),
        "sequence": max([LONGEST_PROMPT, info.dims.get("sequence", 1), *sequences]),
    }
    return {
        "format": FORMAT,
        "epoch": 0,
        "model": {
            "name": work.model or info.name,
            "task": "text-generation",
            "dtype": BY_SHORT[info.dtype].long,
            "max_sequence": 2 * most["sequence"],
            "max_batch": most["batch"],
            "max_requests": 1,
            "vocab_size": VOCABULARY,
            "eos_token_ids": [],
            "pad_token_id": None,
            "bos_token_id": None,
            "labels": None,
            "uniform_positions": False,
        },
        "inputs": [{"name": PROMPT, "dtype": "int64", "shape": ["batch", "sequence"]}],
        "outputs": [{"name": TOKEN, "dtype": "int64", "shape": ["batch"]}],
        "dims": most,
        "predicted": {},
        "verified_on_hardware": False,
    }


def _types(values: Sequence[Value]) -> Mapping[str, Json]:
    found = {}
    for value in values:
        if isinstance(value, State):
            continue
        if value.dtype is None or value.shape is None:
            raise InternalError(f"%{value.name} has no size", hint="run infer-sizes first")
        found[value.name] = {"dtype": BY_SHORT[value.dtype].long, "shape": list(value.shape)}
    return found


def check_profile_folder(folder: Path) -> None:
    """Refuse a folder with something else in it than a profile.

    Raises:
        BundleError: names what is in the way.
    """
    foreign = sorted({path.name for path in folder.iterdir()} - CONTENTS) if folder.is_dir() else []
    if foreign:
        raise BundleError(
            f"the folder is no profile of partc's (holds {foreign[0]!r}); nothing was changed",
            where=str(folder),
            hint="give another folder with -o",
        )
