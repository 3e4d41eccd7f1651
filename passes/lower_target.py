"""`lower-target`: rewrites the graphs of every part in operators that its target runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import InternalError, UserError
from partc.ir.equality import same_graph
from partc.ir.graph import Module, Part
from partc.pipeline.contract import Context, Pass, Target
from partc.pipeline.default import Default
from partc.pipeline.registry import load_target, target_fusions


@dataclass(frozen=True)
class LowerTarget(Pass):
    """Lower each part for the target that it names."""

    name: ClassVar[str] = "lower-target"
    requires: ClassVar[str | None] = "split"
    ensures: ClassVar[str | None] = "split"

    devices: str = Default("")
    """Path of devices.yaml, for the options of each device; without it the targets' defaults."""
    disable: str = Default("")
    """Names of fusions that targets leave out on every device, separated by semicolons."""

    @classmethod
    def fusions(cls) -> tuple[str, ...]:
        """See `Pass`: those of all targets."""
        return target_fusions()

    def apply(self, module: Module, context: Context) -> bool:
        """Set the graphs of every part.

        Raises:
            UserError: `disable` names a fusion that does not exist.
        """
        if module.parts is None:
            raise InternalError("there are no parts", hint="run split-graph before lower-target")
        devices = load_devices(self.devices) if self.devices else None
        return lower(module, devices, _names(self.disable))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";") if name.strip())
    known = target_fusions() if names else ()
    for name in names:
        if name not in known:
            hint = f"fusions: {', '.join(known)}"
            raise UserError(f"there is no fusion {name!r}", where="lower-target{disable}", hint=hint)
    return names


def lower(module: Module, devices: DevicesConfig | None, disable: tuple[str, ...] = ()) -> bool:
    """Replace the graphs of all parts by lowered ones; True if any changed.

    A graph that lies on several devices is lowered once for each target, so that it computes the same on all of them.
    """
    changed = False
    for target, parts in _groups(module.parts or (), devices, disable):
        graphs = list({graph.name: graph for part in parts for graph in part.graphs}.values())
        try:
            lowered = target.lower(graphs, module.info)
        except UserError as error:
            names = ", ".join(part.device for part in parts)
            where = f"device {names}: {error.where}" if error.where else f"device {names}"
            raise type(error)(error.message, where=where, hint=error.hint) from error
        changed |= not all(map(same_graph, graphs, lowered))
        made = {graph.name: new for graph, new in zip(graphs, lowered, strict=True)}
        for part in parts:
            part.graphs = [made[graph.name] for graph in part.graphs]
    return changed


def _groups(
    parts: Sequence[Part], devices: DevicesConfig | None, disable: tuple[str, ...]
) -> list[tuple[Target, list[Part]]]:
    """Parts that are lowered together: those of one target where they share graphs, else each by itself."""
    targets = [_target(part, devices, disable) for part in parts]
    names = [graph.name for part in parts for graph in part.graphs]
    if len(set(names)) == len(names):
        return [(target, [part]) for target, part in zip(targets, parts, strict=True)]
    return [
        (target, [part for part, own in zip(parts, targets, strict=True) if own == target])
        for target in dict.fromkeys(targets)
    ]


def _target(part: Part, devices: DevicesConfig | None, disable: tuple[str, ...]) -> Target:
    config = devices.devices[part.device] if devices else None
    return load_target(part.target, config.target_options if config else None).without(disable)
