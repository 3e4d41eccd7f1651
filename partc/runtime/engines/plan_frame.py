"""Frames: a function of a kernel plan with all of its arguments, as `partc_run` of the library takes them.

Addresses are put together once; a step writes its inputs where they point to, and calls. Layout of the three tables,
as C has them (TVM's ABI):

| table | fields |
| --- | --- |
| call | address of the kernel, address of its first argument, number of arguments |
| argument | 7 (a pointer to a DLTensor), padding, address of a tensor |
| tensor | DLPack's DLTensor: data, device (1: a processor) and its number, axes, element type, shape, strides, offset |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.format.kernel_plan import KernelCall, KernelFunction, KernelPlan, KernelTensor, Place
from partc.runtime.engines.plan_library import Library

_CALL = np.dtype([("kernel", "u8"), ("arguments", "u8"), ("count", "i8")])
_ARGUMENT = np.dtype([("type", "i4"), ("padding", "u4"), ("tensor", "u8")])
_TENSOR = np.dtype(
    [("data", "u8"), ("device", "i4"), ("number", "i4"), ("axes", "i4"), ("code", "u1"), ("bits", "u1"),
     ("lanes", "u2"), ("shape", "u8"), ("strides", "u8"), ("offset", "u8")]
)  # fmt: skip
_TENSOR_ARGUMENT, _PROCESSOR = 7, 1
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
"""DLPack's codes of types: numpy's kinds, and bfloat16, which numpy does not have."""


class Operand(NamedTuple):
    """A tensor that a kernel is called with."""

    place: Place
    kind: KernelTensor
    offset: int = 0
    """Bytes from where the place begins."""
    row: int | None = None
    """In a shared step, the number of the request whose state it is; None: it is no state, or no step is shared."""


Call = tuple[str, Sequence[Operand]]
"""A kernel, and what it is called with."""


class KernelError(Exception):
    """There was not enough memory for a kernel, whose name this is."""


class Frame:
    """One function, ready to be called."""

    def __init__(
        self,
        library: Library,
        function: KernelFunction,
        parameters: Sequence[Array | None],
        calls: Sequence[Call] | None = None,
    ) -> None:
        """`parameters`: inputs, states and weights, as the function takes them; their memory must stay theirs.

        For a shared step `calls` take the place of the function's, and states are None: `point` says where they lie.
        """
        calls = calls or [(call.kernel, operands_of(library.plan, call)) for call in function.calls]
        self._library = library
        self._parameters = parameters
        self._tensors: dict[Operand, int] = {}
        self._kernels = [kernel for kernel, _ in calls]
        given = [[self._number(operand) for operand in operands] for _, operands in calls]
        self._tables = self._make_tables(given)
        self._calls = int(self._tables[-1].ctypes.data)
        self._states = [
            (operand, number) for operand, number in self._tensors.items() if operand.row is not None
        ]
        self.outputs = [self._view(output.place, output) for output in function.outputs]
        """The outputs in the memory where they come to lie: the next call of any function overwrites it."""

    def point(self, states: Sequence[Sequence[int]], first: int) -> None:
        """Let the states of a shared step be those at these addresses: of each request, in the order of parameters.

        `first` is the number of the first parameter that is a state. O(states).
        """
        for (place, _, _, row), number in self._states:
            assert row is not None
            self._tables[1]["data"][number] = states[row][place.at - first]

    def run(self) -> None:
        """Compute the outputs; states among the parameters are changed.

        Raises:
            KernelError: there was not enough memory for a kernel; names it.
        """
        if failed := self._library.run(self._calls, len(self._kernels)):
            raise KernelError(self._kernels[failed - 1])

    def _number(self, operand: Operand) -> int:
        """The number of a tensor; views of one place are different tensors."""
        return self._tensors.setdefault(operand, len(self._tensors))

    def _make_tables(self, given: Sequence[Sequence[int]]) -> tuple[Array, ...]:
        """Sizes, tensors, arguments and calls, each of which points into the one before it."""
        sizes = np.array([size for operand in self._tensors for size in operand.kind.shape], np.int64)
        tensors = np.zeros(len(self._tensors), _TENSOR)
        shape = sizes.ctypes.data
        for number, operand in enumerate(self._tensors):
            kind = operand.kind
            dtype = DTYPES[kind.dtype]
            code = _BFLOAT if kind.dtype == "bfloat16" else _CODES[dtype.kind]
            # Without strides: there are no gaps.
            tensors[number] = (
                self._address(operand),
                _PROCESSOR,
                0,
                len(kind.shape),
                code,
                8 * dtype.itemsize,
                1,
                shape,
                0,
                0,
            )
            shape += sizes.itemsize * len(kind.shape)
        arguments = np.zeros(sum(map(len, given)), _ARGUMENT)
        arguments["type"] = _TENSOR_ARGUMENT
        numbers = np.array([number for call in given for number in call], np.uint64)
        arguments["tensor"] = tensors.ctypes.data + numbers * tensors.itemsize
        calls = np.zeros(len(given), _CALL)
        calls["kernel"] = [self._library.kernels[kernel] for kernel in self._kernels]
        calls["count"] = [len(call) for call in given]
        first = np.cumsum(calls["count"]) - calls["count"]
        calls["arguments"] = arguments.ctypes.data + first * arguments.itemsize
        return sizes, tensors, arguments, calls

    def _address(self, operand: Operand) -> int:
        """Where a tensor lies; 0 for states that `point` tells of."""
        place, _, offset, row = operand
        if row is not None:
            return 0
        match place.room:
            case "arena":
                return int(self._library.arena.ctypes.data) + place.at + offset
            case "parameter":
                return int(self._parameter(place.at).ctypes.data) + offset
            case "constant":
                return int(self._library.constants[place.at].ctypes.data) + offset

    def _parameter(self, number: int) -> Array:
        parameter = self._parameters[number]
        assert parameter is not None, (
            "`shared_calls` lets no state be an output, and kernels take rows of them"
        )
        return parameter

    def _view(self, place: Place, kind: KernelTensor) -> Array:
        match place.room:
            case "arena":
                memory = self._library.arena[place.at : place.at + kind.bytes]
            case "parameter":
                memory = self._parameter(place.at)
            case "constant":
                memory = self._library.constants[place.at]
        return memory.reshape(-1).view(DTYPES[kind.dtype]).reshape(kind.shape)


def operands_of(plan: KernelPlan, call: KernelCall) -> list[Operand]:
    """The operands of a call of a plan."""
    parameters = plan.kernels[call.kernel].parameters
    return [
        Operand(place, KernelTensor(parameter.dtype, parameter.shape))
        for place, parameter in zip(call.arguments, parameters, strict=True)
    ]
