"""OpenCL 1.2, through `libOpenCL.so.1` or the library of the device's maker.

The source is compiled when it is loaded. A list of launches has a kernel object for each, whose arguments are set once.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, TypeVar

from partc.format.dtypes import Array
from partc.format.gpu_code import digest_line
from partc.runtime.engines.gpu.contract import Content, DriverError, Start, function_of

_LIBRARIES = ("libOpenCL.so.1", "libOpenCL.so")
"""Names of the system's library; Android has the second."""
_GPU, _ANY = 1 << 2, 0xFFFFFFFF
"""CL_DEVICE_TYPE: a GPU, else whatever there is."""
_DEVICE_NAME, _BUILD_LOG, _REGION = 0x102B, 0x1183, 0x1220
_MOST_PLATFORMS = 16
_LOG_BYTES = 16384
_HANDLES = {"clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clCreateBuffer",
            "clCreateSubBuffer", "clCreateKernel"}  # fmt: skip
"""Functions that return what they make, and tell the error in their last argument."""


@dataclass(frozen=True, eq=False)
class _Memory:
    """A buffer, or a part of one."""

    handle: c_void_p
    size: int
    whole: _Memory | None = None
    """The memory that it is a part of, which must live as long."""


@dataclass(frozen=True, eq=False)
class _Object:
    """A program or a kernel."""

    handle: c_void_p


_Made = TypeVar("_Made", _Memory, _Object)


class _Region(ctypes.Structure):
    """cl_buffer_region."""

    _fields_ = (("origin", c_size_t), ("size", c_size_t))


class OpenClDriver:
    """See `Driver`; a processor computes where OpenCL has no GPU."""

    def __init__(self) -> None:
        """Take the first device; raises DriverError where there is none."""
        self._library = _open_library()
        for name in _HANDLES:
            function_of(self._library, name).restype = c_void_p
        self._device = self._first_device()
        text = ctypes.create_string_buffer(256)
        self._call("clGetDeviceInfo", self._device, c_uint(_DEVICE_NAME), c_size_t(256), text, None)
        self.name = text.value.decode(errors="replace")
        self._context = self._made("clCreateContext", None, c_uint(1), byref(self._device), None, None)
        self._queue = self._made("clCreateCommandQueue", self._context, self._device, c_uint64(0))

    def load(self, content: Content) -> _Object:
        """See `Driver`."""
        if content.data.partition(b"\n")[0] != digest_line(content.digest).encode():
            raise DriverError("its kernels are not those of the plan")
        text, size = c_char_p(content.data), c_size_t(len(content.data))
        handle = self._made("clCreateProgramWithSource", self._context, c_uint(1), byref(text), byref(size))
        program = self._kept("clReleaseProgram", _Object(handle))
        device, options = byref(self._device), c_char_p(b"-cl-std=CL1.2")
        if code := self._library.clBuildProgram(handle, c_uint(1), device, options, None, None):
            log = ctypes.create_string_buffer(_LOG_BYTES)
            size = c_size_t(_LOG_BYTES)
            self._library.clGetProgramBuildInfo(handle, self._device, c_uint(_BUILD_LOG), size, log, None)
            raise DriverError(f"clBuildProgram: {code}: {log.value.decode(errors='replace')[:2000]}")
        return program

    def allocate(self, size: int) -> _Memory:
        """See `Driver`."""
        handle = self._made("clCreateBuffer", self._context, c_uint64(1), c_size_t(size), None)
        memory = self._kept("clReleaseMemObject", _Memory(handle, size))
        self.clear(memory)
        return memory

    def part(self, buffer: _Memory, offset: int, size: int) -> _Memory:
        """See `Driver`."""
        region = byref(_Region(offset, size))
        handle = self._made("clCreateSubBuffer", buffer.handle, c_uint64(1), c_uint(_REGION), region)
        return self._kept("clReleaseMemObject", _Memory(handle, size, buffer))

    def write(self, buffer: _Memory, array: Array, offset: int = 0) -> None:
        """See `Driver`."""
        self._copy("clEnqueueWriteBuffer", buffer, array, offset)

    def read(self, buffer: _Memory, array: Array, offset: int = 0) -> None:
        """See `Driver`."""
        self._copy("clEnqueueReadBuffer", buffer, array, offset)

    def clear(self, buffer: _Memory) -> None:
        """See `Driver`."""
        zero, none, size = byref(ctypes.c_ubyte(0)), c_size_t(0), c_size_t(buffer.size)
        self._call(
            "clEnqueueFillBuffer",
            self._queue,
            buffer.handle,
            zero,
            c_size_t(1),
            none,
            size,
            c_uint(0),
            None,
            None,
        )

    def prepare(self, code: _Object, starts: Sequence[Start]) -> Callable[[], None]:
        """See `Driver`."""
        kernels = [self._kernel(code, start) for start in starts]
        sizes = [
            (_sizes(*(g * b for g, b in zip(launch.grid, launch.block, strict=True))), _sizes(*launch.block))
            for launch, _ in starts
        ]
        held = (code, starts)

        def run(_: object = held) -> None:
            for kernel, (every, of_block) in zip(kernels, sizes, strict=True):
                self._call(
                    "clEnqueueNDRangeKernel",
                    self._queue,
                    kernel.handle,
                    c_uint(3),
                    None,
                    every,
                    of_block,
                    c_uint(0),
                    None,
                    None,
                )
            self._call("clFlush", self._queue)

        return run

    def _kernel(self, code: _Object, start: Start) -> _Object:
        launch, buffers = start
        if launch.shared_bytes:
            raise DriverError(
                f"{launch.function}: OpenCL has no memory of a block besides what the code declares"
            )
        handle = self._made("clCreateKernel", code.handle, c_char_p(launch.function.encode()))
        kernel = self._kept("clReleaseKernel", _Object(handle))
        size = c_size_t(ctypes.sizeof(c_void_p))
        for number, buffer in enumerate(buffers):
            self._call("clSetKernelArg", handle, c_uint(number), size, byref(buffer.handle))
        return kernel

    def _first_device(self) -> c_void_p:
        """The first GPU of all platforms, else the first device."""
        platforms, count = (c_void_p * _MOST_PLATFORMS)(), c_uint()
        self._library.clGetPlatformIDs(c_uint(_MOST_PLATFORMS), platforms, byref(count))
        for kind in (_GPU, _ANY):
            for platform in platforms[: min(count.value, _MOST_PLATFORMS)]:
                device, found = c_void_p(), c_uint()
                ask = (c_void_p(platform), c_uint64(kind), c_uint(1), byref(device), byref(found))
                if not self._library.clGetDeviceIDs(*ask) and found.value:
                    return device
        raise DriverError("OpenCL has no device here; `clinfo` lists them")

    def _copy(self, name: str, buffer: _Memory, array: Array, offset: int) -> None:
        memory, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        waits, none = c_uint(1), c_uint(0)
        self._call(name, self._queue, buffer.handle, waits, c_size_t(offset), size, memory, none, None, None)

    def _kept(self, release: str, made: _Made) -> _Made:
        """The object, which is released when nobody has it."""
        weakref.finalize(made, function_of(self._library, release), made.handle).atexit = False
        return made

    def _made(self, name: str, *arguments: object) -> c_void_p:
        code = c_int()
        handle = function_of(self._library, name)(*arguments, byref(code))
        if code.value or not handle:
            raise DriverError(f"{name}: {_ERRORS.get(code.value, code.value)}")
        return c_void_p(handle)

    def _call(self, name: str, *arguments: object) -> None:
        if code := function_of(self._library, name)(*arguments):
            raise DriverError(f"{name}: {_ERRORS.get(code, code)}")


_ERRORS = {
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -46: "CL_INVALID_KERNEL_NAME",
    -52: "CL_INVALID_KERNEL_ARGS",
    -54: "CL_INVALID_WORK_GROUP_SIZE",
    -61: "CL_INVALID_BUFFER_SIZE",
}
"""Names of the errors that a step or a loading may meet."""


def _sizes(*sizes: int) -> Any:
    return (c_size_t * len(sizes))(*sizes)


def _open_library() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DriverError(
        f"there is no {_LIBRARIES[0]}, which the driver of a GPU brings (Debian: ocl-icd-libopencl1)"
    )
