"""The headers of `data`: the step and the values that they announce, held against the placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_array
from partc.format.messages import Data
from partc.format.program import Emit
from partc.format.role import Role
from partc.runtime.core.step import Step, check_sizes, check_specs, check_step, step_of
from partc.runtime.core.tokens import check_tokens


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
        self._tokens = frozenset(
            name
            for program in role.programs.values()
            for item in program
            if isinstance(item, Emit) and role.model.generates
            for name in item.values
        )
        """Values that are tokens for clients; another device has drawn those that come in a message."""

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
        values = {
            spec.name: to_array(frame, spec.dtype, spec.shape)
            for frame, spec in zip(frames, data.values, strict=True)
        }
        if not self._tokens.isdisjoint(names):
            self._check_drawn(step, values)
        return step, values

    def _check_drawn(self, step: Step, values: Mapping[str, Array]) -> None:
        """Hold what another device has drawn against the vocabulary: the client is told of it as it came."""
        drawn = [int(token) for name in self._tokens & values.keys() for token in values[name].flat]
        likely = [each.token for row in step.likely for each in row]
        check_tokens([*drawn, *likely], "", self._role.model)
