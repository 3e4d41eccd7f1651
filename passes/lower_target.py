"""`lower-target`: rewrites the graphs of every part in operators that its target runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import InternalError, UserError
from partc.ir.equality import same_graph
from partc.ir.graph import Module
from partc.pipeline.contract import Context, Pass
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
    """Replace the graphs of all parts by lowered ones; True if any changed."""
    changed = False
    for part in module.parts or ():
        config = devices.devices[part.device] if devices else None
        options = config.target_options if config else None
        target = load_target(part.target, options).without(disable)
        try:
            lowered = target.lower(part.graphs, module.info)
        except UserError as error:
            where = f"device {part.device}: {error.where}" if error.where else f"device {part.device}"
            raise type(error)(error.message, where=where, hint=error.hint) from error
        changed |= not all(map(same_graph, part.graphs, lowered))
        part.graphs = lowered
    return changed
