"""The headers of `data`: the step and the values that they announce, held against the placement."""

from __future__ import annotations

from collections.abc import Sequence

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_array
from partc.format.messages import Data
from partc.format.role import Role
from partc.runtime.core.step import Step, check_sizes, check_specs, check_step, step_of


class Headers:
    """The headers that one device takes."""

    def __init__(self, role: Role) -> None:
        """Those of a placement."""
        self._role = role
        self._awaited = frozenset(
            (phase, *message)
            for phase, program in role.programs.items()
            for item in program
            for message in item.awaits
        )
        """(phase, peer, names) of every message that the programs wait for."""

    def read(self, peer: str, data: Data, frames: Sequence[memoryview]) -> tuple[Step, dict[str, Array]]:
        """The step of a message, and its values by name; O(values).

        Raises:
            RunError: the programs do not await it, or it does not fit the placement.
        """
        step = step_of(data, self._role)
        check_step(step, self._role)
        names = tuple([spec.name for spec in data.values])
        if (data.phase, peer, names) not in self._awaited:
            raise RunError(f"{', '.join(names)} is not what {data.phase} awaits from {peer}")
        check_specs(data.values, self._role.types, step.dims)
        check_sizes(data.values, [frame.nbytes for frame in frames])
        return step, {
            spec.name: to_array(frame, spec.dtype, spec.shape)
            for frame, spec in zip(frames, data.values, strict=True)
        }
