"""The reader of kernels.json, and the rules of a plan, so that no plan reads or writes outside of its memory.

Neither the loop that runs a plan nor a kernel checks anything. So this is checked here, and when a library is opened,
that its kernels take what the plan says (`kernels_digest`):

| of | rule |
| --- | --- |
| a constant | its data have the size of its type and shape |
| a call | the kernel is known and gets as many tensors as it takes, each of the type and the size that it takes |
| a parameter, a constant | there is one of this number; constants are only read |
| the arena | offsets are multiples of 64; tensors lie inside; it is as large as they need, and not larger |
| what is read | a call before has written just these bytes, as this type, and nobody has written to them since |
| what is written | it lies in the arena |
| what is written or updated | it lies apart from everything else that the call takes: kernels rely on that |
| launches, where a plan has them | every kernel has some; a block has 1,024 threads at most; arguments are parameters |

So a kernel also never finds in one place what another one left there as something else. Complexity: calls × tensors
that are alive at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from partc.errors import BundleError
from partc.format.dtypes import DTYPES
from partc.format.kernel_plan import (
    KERNELS_FORMAT,
    Kernel,
    KernelCall,
    KernelFunction,
    KernelLaunch,
    KernelParameter,
    KernelPlan,
    KernelTensor,
    Place,
)
from partc.format.layouts import ALIGNMENT
from partc.format.reading import RECOMPILE, check_format, convert, read_object

_MOST_THREADS = 1024
"""Threads of a block on every GPU that there is code for."""


def load_kernel_plan(path: Path) -> KernelPlan:
    """Read and check a kernels.json.

    Raises:
        BundleError: with the key, or the call, that is wrong, and the remedy.
    """
    return parse_kernel_plan(read_object(path), str(path))


def parse_kernel_plan(raw: Mapping[str, object], where: str) -> KernelPlan:
    """Check the content of a kernels.json.

    Raises:
        BundleError: with the key, or the call, that is wrong, and the remedy.
    """
    check_format(raw, KERNELS_FORMAT, where)
    plan = convert(raw, KernelPlan, where)
    for problem in plan_problems(plan):
        raise BundleError(problem, where=where, hint=RECOMPILE)
    return plan


def plan_problems(plan: KernelPlan) -> Iterator[str]:
    """What breaks the rules above, in words that name the place; later rules rely on the earlier ones."""
    for place, tensor in _tensors(plan):
        if tensor.dtype not in DTYPES:
            yield f"{place}: the element type {tensor.dtype!r:.30} is unknown"
            return
    for number, constant in enumerate(plan.constants):
        if len(constant.data) != constant.bytes:
            yield f"constants[{number}]: {len(constant.data)} bytes, its shape takes {constant.bytes}"
    if plan.launches is not UNSET:
        yield from _launch_problems(plan.kernels, plan.launches)
    for name, function in plan.functions.items():
        yield from (f"functions.{name}: {problem}" for problem in _Memory(plan, function).problems())


def _launch_problems(
    kernels: Mapping[str, Kernel], launches: Mapping[str, Sequence[KernelLaunch]]
) -> Iterator[str]:
    if kernels.keys() != launches.keys():
        yield f"launches: {min(kernels.keys() ^ launches.keys())!r} is not there and among the kernels"
        return
    for name, own in launches.items():
        if not own:
            yield f"launches.{name}: there is none"
        for number, launch in enumerate(own):
            if (threads := math.prod(launch.block)) > _MOST_THREADS:
                yield f"launches.{name}[{number}].block: {threads} threads, a block has {_MOST_THREADS} at most"
            if any(argument >= len(kernels[name].parameters) for argument in launch.arguments):
                yield f"launches.{name}[{number}].arguments: the kernel has {len(kernels[name].parameters)} parameters"


def _tensors(plan: KernelPlan) -> Iterator[tuple[str, KernelTensor]]:
    for name, kernel in plan.kernels.items():
        yield from ((f"kernels.{name}", parameter) for parameter in kernel.parameters)
    yield from (("constants", constant) for constant in plan.constants)
    for name, function in plan.functions.items():
        yield from ((f"functions.{name}", tensor) for tensor in (*function.parameters, *function.outputs))


class _Memory:
    """The memory of one function while its calls are followed in order."""

    def __init__(self, plan: KernelPlan, function: KernelFunction) -> None:
        self._plan = plan
        self._function = function
        self._held: dict[int, tuple[int, str]] = {}
        """Offset of a tensor that lies in the arena → the offset behind it, its element type."""
        self._end = 0
        """Bytes of the arena that calls have written to, up to the last one."""

    def problems(self) -> Iterator[str]:
        for number, call in enumerate(self._function.calls):
            for problem in self._of_call(call):
                yield f"calls[{number}] ({call.kernel}): {problem}"
                return
        for number, output in enumerate(self._function.outputs):
            if fault := self._read(output.place, output):
                yield f"outputs[{number}]: {fault}"
        size = -(-self._end // ALIGNMENT) * ALIGNMENT
        if self._function.arena_bytes != size:
            yield f"arena_bytes: {self._function.arena_bytes}, its calls take {size}"

    def _of_call(self, call: KernelCall) -> Iterator[str]:
        if call.kernel not in self._plan.kernels:
            yield "there is no such kernel"
            return
        parameters = self._plan.kernels[call.kernel].parameters
        if len(parameters) != len(call.arguments):
            yield f"{len(call.arguments)} arguments, it takes {len(parameters)}"
            return
        given = list(zip(call.arguments, parameters, strict=True))
        for place, parameter in given:
            problem = self._written(place) if parameter.access == "write" else self._taken(place, parameter)
            if problem:
                yield problem
        yield from _overlaps(given)
        for place, parameter in given:
            if parameter.access == "write":
                self._write(place, parameter)

    def _taken(self, place: Place, parameter: KernelParameter) -> str | None:
        if parameter.access == "update" and place.room == "constant":
            return f"constant {place.at} would be changed"
        return self._read(place, parameter)

    def _read(self, place: Place, tensor: KernelTensor) -> str | None:
        """Why `tensor` cannot be read there; None where it can."""
        if place.room == "arena":
            if self._held.get(place.at) == (place.at + tensor.bytes, tensor.dtype):
                return None
            return f"nothing has written {tensor.dtype}{list(tensor.shape)} to offset {place.at} of the arena"
        known = self._function.parameters if place.room == "parameter" else self._plan.constants
        if place.at >= len(known):
            return f"there is no {place.room} {place.at}"
        found = known[place.at]
        if (found.dtype, found.bytes) != (tensor.dtype, tensor.bytes):
            wanted = f"{tensor.dtype}{list(tensor.shape)}"
            return f"{place.room} {place.at} is {found.dtype}{list(found.shape)}, not {wanted}"
        return None

    def _written(self, place: Place) -> str | None:
        if place.room != "arena":
            return f"{place.room} {place.at} would be overwritten"
        return f"offset {place.at} is no multiple of {ALIGNMENT}" if place.at % ALIGNMENT else None

    def _write(self, place: Place, tensor: KernelTensor) -> None:
        end = place.at + tensor.bytes
        gone = [start for start, (stop, _) in self._held.items() if start < end and place.at < stop]
        for start in gone:
            del self._held[start]
        self._held[place.at] = (end, tensor.dtype)
        self._end = max(self._end, end)


def _overlaps(given: Sequence[tuple[Place, KernelParameter]]) -> Iterator[str]:
    changed = [pair for pair in given if pair[1].access != "read"]
    for pair in changed:
        for other in given:
            if other is not pair and _overlap(pair, other):
                yield f"it changes {pair[0].room} {pair[0].at}, which overlaps {other[0].room} {other[0].at}"


def _overlap(one: tuple[Place, KernelParameter], other: tuple[Place, KernelParameter]) -> bool:
    (first, a), (second, b) = one, other
    if first.room != "arena" or second.room != "arena":
        return first == second
    return first.at < second.at + b.bytes and second.at < first.at + a.bytes
