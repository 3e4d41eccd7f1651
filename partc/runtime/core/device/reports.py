"""Messages that tell the source about a request: its times, and the tensors of a traced one."""

from __future__ import annotations

from collections.abc import Sequence

from partc.format.frames import to_frames
from partc.format.message_parts import TensorSpec
from partc.format.messages import Crossed, Timings
from partc.format.role import Role
from partc.runtime.core.actions import Seen
from partc.runtime.core.device.timings import Timing, timing_table
from partc.runtime.core.step import announced


def crossed(role: Role, seen: Seen) -> tuple[Crossed, list[memoryview]]:
    """The message about tensors that a device received, and its frames."""
    message = Crossed(
        request=seen.step.request,
        device=role.device,
        peer=seen.peer,
        step=seen.step.step,
        values=announced(seen.values.items(), role.types),
    )
    return message, [part for array in seen.values.values() for part in to_frames(array)]


def timings(role: Role, number: int, steps: Sequence[Timing]) -> tuple[Timings, list[memoryview]]:
    """The message about the times of a request, and its frames."""
    columns, table = timing_table(steps)
    specs = (TensorSpec("timing", "float64", table.shape),)
    message = Timings(request=number, device=role.device, columns=tuple(columns), values=specs)
    return message, to_frames(table)
