"""The default pipeline: one list in named phases, the reason beside each position that is not obvious.

What is a matter of correctness stands as `requires` in the pass too, where the manager checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from partc.pipeline.contract import Pass
from partc.pipeline.registry import load_pass, sort_fusions
from partc.pipeline.sharing import SHARING

PHASES: Mapping[str, tuple[str, ...]] = {
    "simplify": (
        "canonicalize",  # first: exporters leave shape arithmetic that would hide sizes from the next pass
        "infer-sizes",
        "fuse-operators",  # after sizes: which sums are normalisations depends on them
        "canonicalize",  # again: fusing leaves dead and duplicate nodes behind
        "infer-sizes",  # again: what fusing made has no sizes yet
        "quantize-weights",  # behind those: every weight is a reference of a product or a table; plans see its size
        "quantize-caches",  # before cutting: a cache and its scales stay with their attention; plans see their sizes
    ),
    "cut": (
        "find-cuts",  # after fusing: Eq. 1 counts neighbours, and a fused normalisation is a candidate
        "form-submodules",
        "coarsen-submodules",  # before the maps, which name sub-modules by number
    ),
    "measure": ("map-dependencies", "profile-submodules"),
    "place": (
        "partition-graph",
        "overlap-submodules",  # last: it fills what memory the plan leaves
    ),
    "emit": (
        "split-graph",  # applies what partition-graph decided; until here the graph is whole
        "lower-target",  # a part at a time: each device may have another target
        "emit-bundle",
    ),
}
"""Phase → its passes, in order."""

SHARED: Mapping[str, tuple[str, ...]] = {
    "cut": ("separate-blocks",),  # behind coarsening, which undoes cuts that many values cross
}
"""What follows the passes of a phase where several devices may share a block."""

PLANNING = ("simplify", "cut", "measure", "place")
"""The phases of `partc plan`: everything up to the plan."""

MEASURING = PLANNING[:-1]
"""Those of `partc plan --fleet`, in which `form-rings` follows: everything up to the costs."""


class Default(str):
    """The default of a pass's option, which the command line may replace; a given value stays."""


def default_pipeline(
    devices: Path,
    strategy: str,
    cut_rule: str,
    output: Path,
    phases: Sequence[str] = tuple(PHASES),
    disable: Sequence[str] = (),
) -> list[Pass]:
    """The passes of `phases` for the devices in the file `devices`; the bundle goes to the folder `output`.

    `disable`: names of fusions to leave out (`partc.pipeline.registry.fusions`).
    """
    further = SHARED if strategy in SHARING else {}
    steps = [load_pass(text) for phase in phases for text in (*PHASES[phase], *further.get(phase, ()))]
    return configure(steps, devices, strategy, cut_rule, output, disable)


def fleet_pipeline(devices: Path, demand: Path, cut_rule: str) -> list[Pass]:
    """The passes up to the rings of a fleet, for the requests in the file `demand`."""
    steps = default_pipeline(devices, "optimal", cut_rule, Path("build"), MEASURING)
    settings = {("form-rings", "devices"): str(devices), ("form-rings", "demand"): str(demand)}
    return [*steps, _configured(load_pass("form-rings"), settings)]


def configure(
    steps: Sequence[Pass],
    devices: Path,
    strategy: str,
    cut_rule: str,
    output: Path,
    disable: Sequence[str] = (),
) -> list[Pass]:
    """`steps` with the options of the command line, for every pass that was not given its own."""
    fusions = sort_fusions(disable) if disable else {}
    settings = {
        ("find-cuts", "rule"): cut_rule,
        ("coarsen-submodules", "rule"): cut_rule,
        ("partition-graph", "devices"): str(devices),
        ("partition-graph", "strategy"): strategy,
        ("overlap-submodules", "devices"): str(devices),
        ("split-graph", "devices"): str(devices),
        ("lower-target", "devices"): str(devices),
        ("emit-bundle", "devices"): str(devices),
        ("emit-bundle", "output"): str(output),
        **{(step, "disable"): names for step, names in fusions.items()},
    }
    return [_configured(step, settings) for step in steps]


def _configured(step: Pass, settings: Mapping[tuple[str, str], str]) -> Pass:
    own = {option: value for (name, option), value in settings.items() if name == step.name}
    return replace(
        step, **{option: value for option, value in own.items() if isinstance(getattr(step, option), Default)}
    )
