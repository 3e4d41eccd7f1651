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

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.format.kernel_plan import KernelFunction, KernelTensor, Place
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


class KernelError(Exception):
    """There was not enough memory for a kernel, whose name this is."""


class Frame:
    """One function, ready to be called."""

    def __init__(self, library: Library, function: KernelFunction, parameters: Sequence[Array]) -> None:
        """`parameters`: inputs, states and weights, as the function takes them; their memory must stay theirs."""
        self._library = library
        self._parameters = parameters
        self._tensors: dict[tuple[Place, KernelTensor], int] = {}
        self._kernels = [call.kernel for call in function.calls]
        kernels = library.plan.kernels
        given = [
            [
                self._number(place, KernelTensor(parameter.dtype, parameter.shape))
                for place, parameter in zip(call.arguments, kernels[call.kernel].parameters, strict=True)
            ]
            for call in function.calls
        ]
        self._tables = self._make_tables(given)
        self._calls = int(self._tables[-1].ctypes.data)
        self.outputs = [self._view(output.place, output) for output in function.outputs]
        """The outputs in the memory where they come to lie: the next call of any function overwrites it."""

    def run(self) -> None:
        """Compute the outputs; states among the parameters are changed.

        Raises:
            KernelError: there was not enough memory for a kernel; names it.
        """
        if failed := self._library.run(self._calls, len(self._kernels)):
            raise KernelError(self._kernels[failed - 1])

    def _number(self, place: Place, kind: KernelTensor) -> int:
        """The number of a tensor; views of one place are different tensors."""
        return self._tensors.setdefault((place, kind), len(self._tensors))

    def _make_tables(self, given: Sequence[Sequence[int]]) -> tuple[Array, ...]:
        """Sizes, tensors, arguments and calls, each of which points into the one before it."""
        sizes = np.array([size for _, kind in self._tensors for size in kind.shape], np.int64)
        tensors = np.zeros(len(self._tensors), _TENSOR)
        shape = sizes.ctypes.data
        for number, (place, kind) in enumerate(self._tensors):
            dtype = DTYPES[kind.dtype]
            code = _BFLOAT if kind.dtype == "bfloat16" else _CODES[dtype.kind]
            # Without strides: there are no gaps.
            tensors[number] = (
                self._address(place),
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

    def _address(self, place: Place) -> int:
        match place.room:
            case "arena":
                return int(self._library.arena.ctypes.data) + place.at
            case "parameter":
                return int(self._parameters[place.at].ctypes.data)
            case "constant":
                return int(self._library.constants[place.at].ctypes.data)

    def _view(self, place: Place, kind: KernelTensor) -> Array:
        match place.room:
            case "arena":
                memory = self._library.arena[place.at : place.at + kind.bytes]
            case "parameter":
                memory = self._parameters[place.at]
            case "constant":
                memory = self._library.constants[place.at]
        return memory.reshape(-1).view(DTYPES[kind.dtype]).reshape(kind.shape)
