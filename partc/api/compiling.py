"""`partc.compile` and `partc.plan`: a model through the pipeline. The commands of these names are written on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partc.api.build import Build
from partc.api.checks import check_fresh, check_targets
from partc.api.models import import_model
from partc.api.pipelines import Following, run_pipeline, telling
from partc.api.places import check_folder
from partc.api.planned import Plan
from partc.bundle.runners import check_runners
from partc.bundle.workspace import check_output
from partc.config.devices import DevicesConfig, load_devices
from partc.ir.graph import Module
from partc.pipeline.contract import Pass, Progress
from partc.pipeline.default import PLANNING, configure, default_pipeline
from partc.pipeline.registry import load_passes
from partc.planner.placed_by_user import check_strategy
from partc.verifier.origin import write_origin

PathLike = str | os.PathLike[str]
CUT_RULE = "eq1+frontier"
"""The usual rule for cuts (`find-cuts`)."""


@dataclass(frozen=True)
class Compilation:
    """A model to be compiled or planned for devices. Making one checks all that can be known before the long work."""

    model: str
    """What `import_model` takes."""
    devices: DevicesConfig
    steps: Sequence[Pass]
    output: Path | None
    """The folder of the build; None: none is written."""
    disable: tuple[str, ...] = ()
    cache: bool = True

    def run(self, following: Following) -> Module:
        """The module after all passes; where a build is written, it remembers what it was compiled from.

        Raises:
            UserError: the model is wrong, or a pass refuses it.
        """

        def load() -> Module:
            return import_model(
                self.model, cache=self.cache, step=following.step, progress=following.progress
            )

        module = run_pipeline(load, self.steps, following)
        if self.output is not None:
            write_origin(self.output, self.model, self.devices, module.info.quantize, self.disable)
        return module


def to_compile(
    model: str,
    devices_file: Path,
    output: Path,
    *,
    strategy: str = "optimal",
    cut_rule: str = CUT_RULE,
    passes: str | None = None,
    disable: Sequence[str] = (),
    cache: bool = True,
) -> Compilation:
    """What `compile` is to do; raises what it raises before the long work."""
    devices = _devices(devices_file, strategy)
    if passes is None:
        steps = default_pipeline(devices_file, strategy, cut_rule, output, disable=disable)
    else:
        steps = configure(load_passes(passes), devices_file, strategy, cut_rule, output, disable)
    wrote = next((Path(vars(step)["output"]) for step in steps if step.name == "emit-bundle"), None)
    check_fresh(steps)
    check_targets(devices, tools=any(step.name == "lower-target" for step in steps))
    if wrote is not None:
        check_runners(devices)
        check_output(wrote)
        check_folder(wrote, "-o", replaced=True)
    if not cache:
        steps = [_anew(step) for step in steps]
    return Compilation(model, devices, steps, wrote, tuple(disable), cache)


def to_plan(
    model: str,
    devices_file: Path,
    *,
    strategy: str = "optimal",
    cut_rule: str = CUT_RULE,
    cache: bool = True,
) -> Compilation:
    """What `plan` is to do; raises what it raises before the long work."""
    devices = _devices(devices_file, strategy)
    check_targets(devices, tools=False)
    steps = default_pipeline(devices_file, strategy, cut_rule, Path("build"), PLANNING)
    return Compilation(model, devices, steps, None, cache=cache)


def compile(
    model: PathLike,
    devices: PathLike,
    output: PathLike = "build",
    *,
    strategy: str = "optimal",
    cut_rule: str = CUT_RULE,
    passes: str | None = None,
    disable: Sequence[str] = (),
    cache: bool = True,
    progress: Progress | None = None,
) -> Build:
    """Compile a model for several devices: one folder for each, and a plan.

    Args:
        model: a model.yaml, a checkpoint folder, an .onnx file or a hub id.
        devices: a devices.yaml.
        output: the folder to write. A build that is there is replaced when the new one is whole.
        strategy: how sub-modules are given to devices; a name that `partc compile --help` lists.
        cut_rule: where the graph may be cut: `eq1`, `eq1+frontier` or `all`.
        passes: passes to run instead of the default pipeline, as `partc opt --passes` takes them.
        disable: names of fusions to leave out.
        cache: use what earlier imports and builds left.
        progress: called as (what, done, total): with (step, 0, 1) when a step begins, and within long ones.

    Raises:
        UserError: a file, the model, the devices or an option is wrong; `where` and `hint` say what and how.
        PlanError: no plan fits the devices.
    """
    given = to_compile(
        os.fspath(model),
        Path(devices),
        Path(output),
        strategy=strategy,
        cut_rule=cut_rule,
        passes=passes,
        disable=disable,
        cache=cache,
    )
    given.run(telling(progress))
    return Build(given.output or output)


def plan(
    model: PathLike,
    devices: PathLike,
    *,
    strategy: str = "optimal",
    cut_rule: str = CUT_RULE,
    cache: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Plan a model for several devices; nothing is written, and no weight is read.

    The arguments, and what is raised, are those of `compile`.
    """
    given = to_plan(os.fspath(model), Path(devices), strategy=strategy, cut_rule=cut_rule, cache=cache)
    return Plan.of(given.run(telling(progress)))


def _devices(file: Path, strategy: str) -> DevicesConfig:
    devices = load_devices(file)
    devices.require_links(file)
    check_strategy(devices, strategy, file)
    return devices


def _anew(step: Pass) -> Pass:
    """The pass so that it copies nothing of an earlier build."""
    return replace(step, reuse=False) if step.name == "emit-bundle" else step  # type: ignore[call-arg]
