"""CUDA's driver interface, through `libcuda.so.1` of NVIDIA's driver.

A list of launches is recorded once as a graph: a step then starts all of its kernels with one call, where one by one
they would cost 5 to 10 us each on a Jetson. Copies are of the default stream, which waits for that of graphs, and that
for it. A graph is recorded in a stream that does not wait: else no other thread could copy meanwhile.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TypeVar

from partc.format.dtypes import Array
from partc.format.gpu_code import DIGEST_NAME
from partc.runtime.engines.gpu.contract import Content, DriverError, Start, function_of

_LIBRARY = "libcuda.so.1"
_WAITS, _DOES_NOT_WAIT = 0, 1
"""CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING"""
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: other threads may allocate meanwhile."""
_SHARED_ATTRIBUTE, _USUAL_SHARED = 8, 48 * 1024
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which a function needs that asks for more than the usual."""
_NAME_BYTES = 256
_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class _Memory:
    """A part of the device's memory."""

    address: int
    size: int
    whole: _Memory | None = None
    """The memory that it is a part of, which must live as long."""


@dataclass(frozen=True, eq=False)
class _Module:
    """Loaded functions."""

    handle: c_void_p


class CudaDriver:
    """See `Driver`."""

    def __init__(self) -> None:
        """Take the first GPU; raises DriverError where there is none."""
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise DriverError(f"there is no {_LIBRARY}, which NVIDIA's driver brings") from None
        device, self._context = c_int(), c_void_p()
        self._stream, self._recorder = c_void_p(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGet", byref(device), c_int(0))
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, c_int(_NAME_BYTES), device)
        self.name = name.value.decode(errors="replace")
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._enter()
        self._call("cuStreamCreate", byref(self._stream), c_uint(_WAITS))
        self._call("cuStreamCreate", byref(self._recorder), c_uint(_DOES_NOT_WAIT))

    def load(self, content: Content) -> _Module:
        """See `Driver`."""
        self._enter()
        handle = c_void_p()
        self._call("cuModuleLoadData", byref(handle), c_char_p(content.data))
        module = self._kept(_Module(handle), "cuModuleUnload", handle)
        address, size = c_uint64(), c_size_t()
        self._call(
            "cuModuleGetGlobal_v2", byref(address), byref(size), handle, c_char_p(DIGEST_NAME.encode())
        )
        found = (c_ubyte * len(content.digest))()
        if size.value == len(found):
            self._call("cuMemcpyDtoH_v2", found, address, size)
        if bytes(found) != content.digest:
            raise DriverError("its kernels are not those of the plan")
        return module

    def allocate(self, size: int) -> _Memory:
        """See `Driver`."""
        self._enter()
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        memory = self._kept(_Memory(address.value or 0, size), "cuMemFree_v2", address)
        self.clear(memory)
        return memory

    def part(self, buffer: _Memory, offset: int, size: int) -> _Memory:
        """See `Driver`."""
        return _Memory(buffer.address + offset, size, buffer)

    def write(self, buffer: _Memory, array: Array, offset: int = 0) -> None:
        """See `Driver`."""
        self._enter()
        source, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self._call("cuMemcpyHtoD_v2", c_uint64(buffer.address + offset), source, size)

    def read(self, buffer: _Memory, array: Array, offset: int = 0) -> None:
        """See `Driver`."""
        self._enter()
        target, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self._call("cuMemcpyDtoH_v2", target, c_uint64(buffer.address + offset), size)

    def clear(self, buffer: _Memory) -> None:
        """See `Driver`."""
        self._enter()
        self._call("cuMemsetD8_v2", c_uint64(buffer.address), c_ubyte(0), c_size_t(buffer.size))

    def prepare(self, code: _Module, starts: Sequence[Start]) -> Callable[[], None]:
        """See `Driver`."""
        self._enter()
        graph, executable = c_void_p(), c_void_p()
        self._call("cuStreamBeginCapture_v2", self._recorder, c_int(_RELAXED))
        try:
            for start in starts:
                self._launch(code, start)
        finally:
            self._call("cuStreamEndCapture", self._recorder, byref(graph))
        self._call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        self._call("cuGraphDestroy", graph)
        return self._kept(_Graph(self, code, starts, executable), "cuGraphExecDestroy", executable).run

    def run_graph(self, executable: c_void_p) -> None:
        """Start what was recorded."""
        self._enter()
        self._call("cuGraphLaunch", executable, self._stream)

    def _launch(self, code: _Module, start: Start) -> None:
        launch, buffers = start
        function = c_void_p()
        name = c_char_p(launch.function.encode())
        self._call("cuModuleGetFunction", byref(function), code.handle, name)
        if launch.shared_bytes > _USUAL_SHARED:
            more = c_int(launch.shared_bytes)
            self._call("cuFuncSetAttribute", function, c_int(_SHARED_ATTRIBUTE), more)
        # The driver copies the values during the call.
        values = (c_uint64 * len(buffers))(*(buffer.address for buffer in buffers))
        step = ctypes.sizeof(c_uint64)
        first = ctypes.addressof(values)
        arguments = (c_void_p * len(buffers))(*(first + step * number for number in range(len(buffers))))
        sizes = (c_uint(size) for size in (*launch.grid, *launch.block, launch.shared_bytes))
        self._call("cuLaunchKernel", function, *sizes, self._recorder, arguments, POINTER(c_void_p)())

    def _enter(self) -> None:
        """Every thread that calls has to say in which context."""
        self._call("cuCtxSetCurrent", self._context)

    def _kept(self, made: _Made, give_back: str, handle: object) -> _Made:
        """The object, which is given back when nobody has it, in whatever thread that is."""
        weakref.finalize(made, self._give_back, give_back, handle).atexit = False
        return made

    def _give_back(self, name: str, handle: object) -> None:
        """Nobody has a use for the answer."""
        self._library.cuCtxSetCurrent(self._context)
        function_of(self._library, name)(handle)

    def _call(self, name: str, *arguments: object) -> None:
        if code := function_of(self._library, name)(*arguments):
            text = c_char_p()
            self._library.cuGetErrorName(c_int(code), byref(text))
            raise DriverError(f"{name}: {(text.value or b'').decode() or code}")


class _Graph:
    """A recorded list of launches; it has what they take."""

    def __init__(
        self, driver: CudaDriver, code: _Module, starts: Sequence[Start], executable: c_void_p
    ) -> None:
        self._driver = driver
        self._kept = (code, starts)
        self._executable = executable

    def run(self) -> None:
        self._driver.run_graph(self._executable)
