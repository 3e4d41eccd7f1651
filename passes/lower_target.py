"""`lower-target`: rewrites the graphs of every part in operators that its target runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import InternalError
from partc.ir.graph import Module
from partc.ir.text import print_module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.pipeline.registry import load_target


@dataclass(frozen=True)
class LowerTarget(Pass):
    """Lower each part for the target that it names."""

    name: ClassVar[str] = "lower-target"
    requires: ClassVar[str | None] = "split"
    ensures: ClassVar[str | None] = "split"

    target: str = Default("")
    """Path of devices.yaml, for the options of each device; without it the targets' defaults."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set the graphs of every part."""
        if module.parts is None:
            raise InternalError("there are no parts", hint="run split-graph before lower-target")
        devices = load_devices(self.target) if self.target else None
        return lower(module, devices)


def lower(module: Module, devices: DevicesConfig | None) -> bool:
    """Replace the graphs of all parts by lowered ones; True if any changed."""
    before = print_module(module)
    for part in module.parts or ():
        config = devices.devices[part.device] if devices else None
        options = config.target_options if config else None
        part.graphs = load_target(part.target, options).lower(part.graphs, module.info)
    return before != print_module(module)
