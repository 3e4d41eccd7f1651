"""The runner under test, in rings whose other devices are ours, or alone."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from partc.conformance.bundles import BUNDLES
from partc.conformance.reference import Reference
from partc.errors import RunError
from partc.format.names import device_folders
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.runners import PYTHON_RUNNER
from partc.scratch import scratch_folder

READY_S = 60.0
"""The time in which a runner must have loaded a small build."""
PATIENCE_S = 20.0
"""That of the rings: a check that waits longer has failed."""


@dataclass
class Bench:
    """Rings are kept from check to check; a context manager that ends them."""

    command: Sequence[str]
    """The runner under test, without options."""
    others: Sequence[str] = PYTHON_RUNNER
    """The runner of the other devices."""
    given: Mapping[str, Path] = field(default_factory=dict)
    """Builds of the user, by name, beside the small ones."""
    _scratch: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _builds: dict[str, Path] = field(default_factory=dict)
    _references: dict[str, Reference] = field(default_factory=dict)
    _rings: dict[tuple[str, str], LocalRing] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_rings()
        self._scratch.close()

    def build(self, name: str) -> Path:
        """The folder of a small build, or of one of the user's."""
        if name in self.given:
            return self.given[name]
        if name not in self._builds:
            self._builds[name] = self.fresh(name)
        return self._builds[name]

    def fresh(self, name: str) -> Path:
        """A small build of its own, which a check may damage."""
        scratch = self._scratch.enter_context(scratch_folder("conformance"))
        return BUNDLES[name]().write(scratch / name)

    def reference(self, name: str) -> Reference:
        """The right results of a build."""
        if name not in self._references:
            self._references[name] = Reference(self.build(name))
        return self._references[name]

    def ring(self, name: str, device: str) -> LocalRing:
        """A ring whose `device` is run by the runner under test."""
        key = name, device
        if key not in self._rings:
            self._rings[key] = self._launch(name, device, restart=False)
        return self._rings[key]

    @contextlib.contextmanager
    def own_ring(self, name: str, device: str, **options: Any) -> Iterator[LocalRing]:
        """Such a ring for one check, in which devices may be killed."""
        with self._launch(name, device, **options) as ring:
            yield ring

    def end_rings(self) -> None:
        """End all rings that are kept."""
        while self._rings:
            _, ring = self._rings.popitem()
            with contextlib.suppress(RunError, OSError, subprocess.SubprocessError):
                ring.close(at_once=True)

    def _launch(self, name: str, device: str, **options: Any) -> LocalRing:
        build = self.build(name)
        runners = {folder.name: self.others for folder in device_folders(build)}
        options = {"floor_s": PATIENCE_S, **options}
        return launch_local(build, runners={**runners, device: self.command}, ready_s=READY_S, **options)
