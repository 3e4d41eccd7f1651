"""The headers of `data`: the step and the values that they announce, held against the placement.

From token to token a header tells little that is new, and a ring waits while it is read. So there are two memories, of
values that were right before and of the steps that will be next; a message that fits neither is checked from the
beginning, and with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_array
from partc.format.message_parts import Row, TensorSpec
from partc.format.messages import Data
from partc.format.role import Role
from partc.runtime.core.step import Step, check_sizes, check_specs, check_step, rows_of, step_of

_MOST_KNOWN = 256
"""Entries of each memory; a full one is emptied."""


class Headers:
    """The headers that one device takes and sends."""

    def __init__(self, role: Role) -> None:
        """Nothing is known yet."""
        self._role = role
        self._awaited = frozenset(
            (phase, *message)
            for phase, program in role.programs.items()
            for item in program
            for message in item.awaits
        )
        """(phase, peer, names) of every message that the programs wait for."""
        self._known: dict[tuple[str, str, tuple[TensorSpec, ...]], Mapping[str, int]] = {}
        """Values that were held against the placement → the sizes for which they are right."""
        self._expected: dict[int, tuple[Step, tuple[Row, ...]]] = {}
        """Request → the step that will be next, checked, and its rows."""

    def expect(self, step: Step) -> None:
        """Prepare for the messages of a step, while there is time.

        When a step ends, the caches of the processor hold its weights instead of the code that reads and checks
        headers, which then takes ten times as long as in a loop.
        """
        if len(self._expected) >= _MOST_KNOWN:
            self._expected.clear()
        try:
            check_step(step, self._role)
        except RunError:
            return  # there will be no such step
        self._expected[step.request] = step, rows_of(step, self._role.model.max_batch)

    def read(self, peer: str, data: Data, frames: Sequence[memoryview]) -> tuple[Step, dict[str, Array]]:
        """The step of a message, and its values by name; O(values).

        Raises:
            RunError: the programs do not await it, or it does not fit the placement.
        """
        step = self._step_of(data)
        key = (peer, data.phase, data.values)
        if self._known.get(key) != data.dims:
            self._check(key, step)
        check_sizes(data.values, [frame.nbytes for frame in frames])
        return step, {
            spec.name: to_array(frame, spec.dtype, spec.shape)
            for frame, spec in zip(frames, data.values, strict=True)
        }

    def rows_of(self, step: Step) -> tuple[Row, ...]:
        """The rows of a step that is about to be sent."""
        expected = self._expected.get(step.request)
        if expected is not None and expected[0] == step:
            return expected[1]
        return rows_of(step, self._role.model.max_batch)

    def _check(self, key: tuple[str, str, tuple[TensorSpec, ...]], step: Step) -> None:
        peer, phase, values = key
        names = tuple([spec.name for spec in values])
        if (phase, peer, names) not in self._awaited:
            raise RunError(f"{', '.join(names)} is not what {phase} awaits from {peer}")
        check_specs(values, self._role.types, step.dims)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = step.dims

    def _step_of(self, data: Data) -> Step:
        expected = self._expected.get(data.rows[0].request)
        if expected is not None:
            step, rows = expected
            if rows == data.rows and step.phase == data.phase and step.dims == data.dims and not data.open:
                return step
        step = step_of(data, self._role)
        check_step(step, self._role)
        return step
