"""Writes a build: one folder a device, all in place of the old build in one step.

```
build/
  plan.json                        the problem, the answer, the predicted timeline
  keys/                            the client's secret; not hashed
  runs/                            what was run, and what the files were made from; not hashed
  devices/<name>/build.json        see docs/bundle.md
  devices/<name>/placement.json    the same for all devices
  devices/<source>/placements/     what the ring does after the loss of a device
  devices/<name>/partc-runner      the native runner, where one is built for the device's platform; not hashed
  devices/<name>/…                 what the target wrote, the tokenizer (source only), keys/
```
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from partc.bundle.describe import (
    EmittedPart,
    describe_builds,
    describe_contingencies,
    describe_placement,
    weights_bytes,
)
from partc.bundle.preprocessor import copy_preprocessor, preprocessor_files
from partc.bundle.resume import RECORDS, DeviceTensors, Earlier, inputs_hash, new_record, write_record
from partc.bundle.runners import copy_runner
from partc.bundle.tensors import fingerprint
from partc.bundle.tokenizer import copy_tokenizer, tokenizer_files
from partc.bundle.workspace import Workspace, commit, open_workspace
from partc.config.devices import DevicesConfig
from partc.errors import BundleError, InternalError
from partc.format.build import build_json
from partc.format.contingencies import contingency_file
from partc.format.digests import canonical_json
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from partc.format.placement import load_placement, placement_json
from partc.format.plan import PlanFile
from partc.ir.graph import Module, Part
from partc.kept import reading_kept
from partc.pipeline.contract import Progress, Target, no_progress
from partc.pipeline.registry import load_target
from partc.planner.model.plan_file import PLAN_FILE


def write_bundle(
    module: Module,
    output: Path,
    devices: DevicesConfig | None = None,
    progress: Progress = no_progress,
    *,
    reuse: bool = True,
) -> list[EmittedPart]:
    """Emit all parts of `module` and put the build at `output`.

    A compile that is killed leaves `output` as it was; the next one takes over its finished devices. An
    existing build is replaced when the new one is complete; devices and tensors that come from the same inputs are
    copied from it, its runs are kept, and so are its keys if the devices are the same. Equal inputs give equal bytes,
    keys and runs aside. `devices` gives addresses, threads and memory budgets. Without `reuse` every file is made anew:
    a file that the disk damaged has the size and the time that it had, and would be copied.

    Raises:
        BundleError: `output` is something else than a build.
        ModelError: the checkpoint lacks a tensor, or it has another shape.
    """
    if not module.parts:
        raise InternalError("there are no parts to emit", hint="run split-graph before emit-bundle")
    output = output.resolve()
    with (
        open_workspace(output) as workspace,
        closing(Earlier([output, *workspace.leftovers] if reuse else [])) as earlier,
        reading_kept(reuse),
    ):
        targets = [_target_of(part, devices) for part in module.parts]
        reports = _overall(module.parts, targets, progress)
        emitted = [
            _emit(module, part, target, workspace, earlier, report)
            for part, target, report in zip(module.parts, targets, reports, strict=True)
        ]
        builds = describe_builds(module, emitted, devices)
        plan_id = next(iter(builds.values())).plan_id
        placement = describe_placement(module, module.parts, devices, plan_id)
        for device, build in builds.items():
            _write_json(workspace.folder / "devices" / device / BUILD_FILE, build_json(build))
            _write_json(workspace.folder / "devices" / device / PLACEMENT_FILE, placement_json(placement))
            if devices is not None:
                copy_runner(devices.devices[device], workspace.folder / "devices" / device)
        for lost, after in describe_contingencies(module, module.parts, devices, plan_id).items():
            path = workspace.folder / "devices" / placement.source / contingency_file(lost)
            path.parent.mkdir(exist_ok=True)
            _write_json(path, placement_json(after))
        _write_json(workspace.folder / PLAN_FILE, (module.plan or PlanFile()).to_json())
        _keep_or_make_keys(workspace.folder, output, [item.part.device for item in emitted])
        _keep_runs(workspace.folder, output)
        commit(workspace, output)
    return emitted


def _target_of(part: Part, devices: DevicesConfig | None) -> Target:
    config = devices.devices[part.device] if devices else None
    return load_target(part.target, config.target_options if config else None)


def _overall(parts: Sequence[Part], targets: Sequence[Target], progress: Progress) -> Iterator[Progress]:
    """The progress of each part, as a share of the weights of all parts."""
    sizes = [
        weights_bytes(part.graphs, target.stored_bytes) for part, target in zip(parts, targets, strict=True)
    ]
    for number, size in enumerate(sizes):
        before = sum(sizes[:number])

        def report(what: str, done: int, total: int, before: int = before, size: int = size) -> None:
            progress(what, before + size * done // max(total, 1), sum(sizes))

        yield report


def _emit(
    module: Module,
    part: Part,
    target: Target,
    workspace: Workspace,
    earlier: Earlier,
    progress: Progress,
) -> EmittedPart:
    is_source = module.parts is not None and part is module.parts[0]
    tokenizer = [str(path.absolute()) for path in tokenizer_files(module.info).values()]
    sources = [*tokenizer, *preprocessor_files(module)]
    extra = fingerprint(module.info, sources) if is_source else []
    inputs = inputs_hash(part, module.info, target, extra)
    folder = workspace.folder / "devices" / part.device
    record = earlier.take_over(folder, inputs, progress)
    if record is None:
        folder.mkdir(parents=True)
        tensors = DeviceTensors(module.info, earlier)
        artifact = target.emit(part, module.info, folder, progress, tensors)
        if is_source:
            copy_tokenizer(module.info, folder)
            copy_preprocessor(module, folder)
        record = new_record(folder, inputs, artifact, tensors.places)
    write_record(workspace.folder, part.device, record)
    return EmittedPart(part, target, record.artifact, record.files)


def _write_json(path: Path, data: object) -> None:
    path.write_text(canonical_json(data), encoding="utf-8", newline="\n")


def _keep_runs(folder: Path, old: Path) -> None:
    """Keep what was recorded of the old build, but what its files were made from."""
    runs, records = old / RECORDS.parent, old / RECORDS
    if runs.is_dir():
        shutil.copytree(
            runs, folder / RECORDS.parent, dirs_exist_ok=True,
            ignore=lambda place, names: [name for name in names if Path(place, name) == records],
        )  # fmt: skip


def _keep_or_make_keys(folder: Path, old: Path, ring: Sequence[str]) -> None:
    from partc.runtime.shell.keys import make_keys

    if _devices_of(old) == (ring[0], sorted(ring)):
        for place in (Path("keys"), *(Path("devices", name, "keys") for name in ring)):
            if (old / place).is_dir():
                shutil.copytree(old / place, folder / place)
        return
    make_keys(folder, list(ring), ring[0])


def _devices_of(build: Path) -> tuple[str, list[str]] | None:
    """The source and all devices of an existing build that has keys; None where they cannot be told."""
    paths = sorted(build.glob(f"devices/*/{PLACEMENT_FILE}"))
    if not paths or not (build / "keys").is_dir():
        return None
    try:
        source = load_placement(paths[0].parent).source
    except BundleError:
        return None
    return source, [path.parent.name for path in paths]
