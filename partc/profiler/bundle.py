"""The bundles of a profile: a folder per device with all that is to be measured there.

They are ordinary ones (docs/bundle.md), so that engines, keys and checks are those of a real run; but every
device is its own source, so that the client may ask each of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from partc.bundle.describe import largest_dims, tensor_type
from partc.config.devices import DeviceConfig, DevicesConfig
from partc.errors import BundleError
from partc.format.build import Build, EngineSpec, Memory, Model, Port, TensorType, build_json, seal_builds
from partc.format.digests import canonical_json
from partc.format.files import hash_folder
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from partc.format.placement import Placement, placement_json, seal_placement
from partc.format.tasks import SOURCE
from partc.ir.graph import STEP_INPUTS, Graph, ModelInfo, Part, State, Value
from partc.ir.types import BY_SHORT
from partc.pipeline.contract import Artifact, Progress
from partc.pipeline.registry import load_target
from partc.profiler.graphs import LONGEST_PROMPT, VOCABULARY, probe_graphs, write_numbers
from partc.profiler.work import WORK_FILE, Work, save_work
from partc.runtime.measure.ring import PROMPT, TOKEN, ring_placement
from partc.runtime.shell.keys import make_keys
from partc.scratch import scratch_folder

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
    builds: dict[str, Build] = {}
    with scratch_folder("profile") as scratch:
        groups: list[tuple[ModelInfo, Sequence[Graph]]] = [
            (write_numbers(scratch, work.sizes), probe_graphs(work.sizes))
        ]
        if model:
            info, graphs = model
            groups.append((replace(info, max_requests=1), graphs))  # one request is measured at a time
        for name in work.devices:
            place = folder / "devices" / name
            place.mkdir(parents=True)
            builds[name] = _emit(place, work, devices.devices[name], groups, progress)
    addresses = {name: devices.devices[name].address for name in work.devices}
    for name, build in seal_builds(builds).items():
        placement = _placement(build.plan_id, name, addresses)
        _write_json(folder / "devices" / name / BUILD_FILE, build_json(build))
        _write_json(folder / "devices" / name / PLACEMENT_FILE, placement_json(placement))
    make_keys(folder, work.devices, *work.devices)
    save_work(work, folder)


def _emit(
    place: Path,
    work: Work,
    device: DeviceConfig,
    groups: Sequence[tuple[ModelInfo, Sequence[Graph]]],
    progress: Progress,
) -> Build:
    """Write the files of one device, and describe them."""
    target = load_target(device.target, device.target_options)
    artifacts = []
    values: dict[str, TensorType] = {}
    for info, graphs in groups:
        for graph in graphs:
            values.update(_types([*graph.inputs, *graph.outputs]))
            # One at a time, as they are measured, each in its own folder: graphs of one part may share files.
            part = Part(device.name, target.lower([graph], info), {}, device.target)
            (place / graph.name).mkdir()
            artifacts.append(_inside(graph.name, target.emit(part, info, place / graph.name, progress)))
    info = groups[-1][0]
    dims = _dims(info, work)
    return Build(
        plan_id="",
        device=device.name,
        target=device.target,
        model=_model(info, work, dims),
        inputs=(Port(PROMPT, "int64", ("batch", "sequence")),),
        outputs=(Port(TOKEN, "int64", ("batch",)),),
        dims=dims,
        values={**values, TOKEN: TensorType("int64", ("batch",))},
        submodules=tuple(item for artifact in artifacts for item in artifact.submodules),
        engine=_joined([artifact.engine for artifact in artifacts]),
        memory=Memory(None, 0, 0, None),
        toolkit=artifacts[-1].toolkit,
        files=hash_folder(place),
        digest="",
    )


def _placement(plan_id: str, device: str, addresses: Mapping[str, str | None]) -> Placement:
    """`device` is a source by itself; the others are there, and idle."""
    alone = ring_placement(plan_id, [device], addresses)
    programs = {phase: {**dict.fromkeys(addresses, ""), **own} for phase, own in alone.programs.items()}
    return seal_placement(msgspec.structs.replace(alone, ring=tuple(addresses), programs=programs))


def _write_json(path: Path, data: Json) -> None:
    path.write_text(canonical_json(data), encoding="utf-8")


def _inside(folder: str, artifact: Artifact) -> Artifact:
    """The same files as seen from the folder above `folder`."""
    moved = tuple(
        msgspec.structs.replace(
            item, file=f"{folder}/{item.file}", weights=tuple(f"{folder}/{file}" for file in item.weights)
        )
        for item in artifact.submodules
    )
    return replace(artifact, submodules=moved)


def _joined(engines: Sequence[EngineSpec]) -> EngineSpec:
    """The engine of all artifacts of a target: the functions of all their sub-modules together."""
    last = engines[-1]
    if last.library is None:
        return last
    functions = {
        name: found
        for engine in engines
        if engine.library
        for name, found in engine.library.functions.items()
    }
    return msgspec.structs.replace(last, library=msgspec.structs.replace(last.library, functions=functions))


def _dims(info: ModelInfo, work: Work) -> dict[str, int]:
    """The largest sizes: those of the model, which its code is made for, of what is measured, and of the rings."""
    own = largest_dims(info)
    asked = (own, {"sequence": LONGEST_PROMPT, SOURCE: LONGEST_PROMPT}, *(task.dims for task in work.tasks))
    names = ("batch", "sequence", *({SOURCE} & own.keys()))
    return {**own, **{name: max(dims.get(name, 1) for dims in asked) for name in names}}


def _model(info: ModelInfo, work: Work, dims: Mapping[str, int]) -> Model:
    return Model(
        name=work.model or info.name,
        task="text-generation",
        dtype=BY_SHORT[info.dtype].long,
        max_sequence=2 * dims["sequence"],
        max_batch=dims["batch"],
        max_requests=info.max_requests,
        vocab_size=VOCABULARY,
        eos_token_ids=(),
        pad_token_id=None,
        bos_token_id=None,
        labels=None,
    )


def _types(values: Sequence[Value]) -> dict[str, TensorType]:
    """The types of values, but for step inputs and states."""
    return {
        value.name: tensor_type(value)
        for value in values
        if not isinstance(value, State) and value.name not in STEP_INPUTS
    }


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
