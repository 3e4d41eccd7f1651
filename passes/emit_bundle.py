"""`emit-bundle`: writes the folder of every device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from partc.bundle.writer import write_bundle
from partc.config.devices import load_devices
from partc.ir.graph import Module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default


@dataclass(frozen=True)
class EmitBundle(Pass):
    """Emit the lowered parts as a build."""

    name: ClassVar[str] = "emit-bundle"
    requires: ClassVar[str | None] = "split"
    ensures: ClassVar[str | None] = "split"

    output: str = Default("build")
    """Folder of the build."""
    target: str = Default("")
    """Path of devices.yaml, for addresses, threads and memory budgets; without it the targets' defaults."""

    def apply(self, module: Module, context: Context) -> bool:
        """Write the build; the module stays as it is."""
        devices = load_devices(self.target) if self.target else None
        write_bundle(module, Path(self.output), devices, context.progress)
        return False
