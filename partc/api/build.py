"""A build: what `compile` wrote, as programs use it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partc.api.builds import load_build
from partc.api.planned import Plan
from partc.format.role import read_roles
from partc.planner.model.plan_file import PLAN_FILE

if TYPE_CHECKING:
    import os

    from partc.api.ring import Ring
    from partc.format.build import Model
    from partc.format.role import Role


class Build:
    """The folder of a build. Making one reads the role of its source alone."""

    def __init__(self, folder: str | os.PathLike[str] = "build") -> None:
        """Open what `compile` wrote.

        Raises:
            BundleError: it is no build; the hint says what was meant.
        """
        self.path = Path(folder)
        """As it was given."""
        self._source = load_build(self.path)

    @property
    def model(self) -> Model:
        """Facts of the model: `name`, `task`, `dtype`, `vocab_size`, `max_sequence` and others."""
        return self._source.model

    @property
    def source(self) -> str:
        """The device where requests enter."""
        return self._source.source

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in the ring, in its order."""
        return tuple(self._source.ring)

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Device → what it holds and does, as the formats have it (docs/bundle.md).

        Raises:
            BundleError: the folders are not those of one build.
        """
        return dict(read_roles(self.path))

    @cached_property
    def plan(self) -> Plan:
        """The plan that it was compiled by.

        Raises:
            PlanError: plan.json is damaged.
        """
        return Plan.read(self.path / PLAN_FILE)

    def ring(self, **options: Any) -> Ring:
        """Its devices as processes of this machine, or running ones; the options are those of `Ring`."""
        from partc.api.ring import Ring

        return Ring(self.path, **options)

    def __repr__(self) -> str:
        return f"<partc.Build {str(self.path)!r}: {self.model.name}, {self.model.task}, on {' → '.join(self.devices)}>"
