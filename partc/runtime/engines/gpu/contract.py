"""The contract of drivers, and the table of those there are.

A driver opens the system's library by its name, so that nothing of a GPU's maker is needed where partc is installed or
compiled. It hands out buffers, copies, and runs lists of launches whose arguments never change.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from partc.format.dtypes import Array
from partc.format.kernel_plan import KernelLaunch

PART_BYTES = 512
"""Parts of buffers begin at multiples of it: no OpenCL asks for more."""
Buffer = Any
"""Memory of the device, given back when nobody has the object any more."""
Code = Any
"""Functions of the device."""
Start = tuple[KernelLaunch, Sequence[Buffer]]
"""A launch, and the buffers that its function takes, in the order of the function."""


class DriverError(Exception):
    """A call of the driver failed; the text names call and reason."""


def function_of(library: ctypes.CDLL, name: str) -> Any:
    """A function of a driver's library; raises DriverError where it has none of that name."""
    try:
        return getattr(library, name)
    except AttributeError:
        raise DriverError(f"{name} is missing: the driver is too old") from None


@dataclass(frozen=True)
class Content:
    """The file that a build has for a driver."""

    data: bytes
    digest: bytes
    """SHA-256 of the kernels and launches that it has to fit."""


class Driver(Protocol):
    """The first GPU of the machine."""

    name: str
    """The name that the device gives itself."""

    def load(self, content: Content) -> Code:
        """The functions in a file.

        Raises:
            DriverError: they are for another device, or of another plan.
        """

    def allocate(self, size: int) -> Buffer:
        """Memory of so many bytes, 1 or more, all zero; raises DriverError where there is not enough."""

    def part(self, buffer: Buffer, offset: int, size: int) -> Buffer:
        """A part of a buffer, which begins at a multiple of `PART_BYTES`."""

    def write(self, buffer: Buffer, array: Array, offset: int = 0) -> None:
        """Copy a contiguous array to a buffer, from byte `offset` on; it may be changed afterwards."""

    def read(self, buffer: Buffer, array: Array, offset: int = 0) -> None:
        """Copy a buffer from byte `offset` on to a contiguous array, after all work before it."""

    def clear(self, buffer: Buffer) -> None:
        """Make a buffer zeros."""

    def prepare(self, code: Code, starts: Sequence[Start]) -> Callable[[], None]:
        """A function that does all of these launches, one after the other, without waiting for them."""


_DRIVERS = {
    "cuda": ("partc.runtime.engines.gpu.cuda", "CudaDriver"),
    "opencl": ("partc.runtime.engines.gpu.opencl", "OpenClDriver"),
}
"""Provider → module and class; imported when asked for."""


def open_driver(provider: str) -> Driver:
    """The driver of a provider, on the first GPU; raises DriverError where the machine has none."""
    module, name = _DRIVERS[provider]
    driver: Driver = getattr(importlib.import_module(module), name)()
    return driver
