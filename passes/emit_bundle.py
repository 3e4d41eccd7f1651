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
    devices: str = Default("")
    """Path of devices.yaml, for addresses, threads and memory budgets; without it the targets' defaults."""
    reuse: bool = True
    """Whether to copy what did not change from the build that is there; else every file is made anew."""

    def apply(self, module: Module, context: Context) -> bool:
        """Write the build; the module stays as it is.

        Raises:
            OSError: the system refuses to write, a full disk for one; names a file, or else the build.
        """
        devices = load_devices(self.devices) if self.devices else None
        try:
            write_bundle(module, Path(self.output), devices, context.progress, reuse=self.reuse)
        except OSError as error:
            if error.filename is None:  # writing to an open file names none
                error.filename = self.output
            raise
        return False
