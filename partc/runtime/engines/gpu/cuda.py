"""CUDA's driver interface, through `libcuda.so.1` of NVIDIA's driver.

A list of launches is recorded once as a graph: a step then starts all of its kernels with one call, where one by one
they would cost 5 to 10 us each on a Jetson. Copies are of the default stream, which waits for ours, and ours for it.
So CUDA refuses copies while a list is recorded, and spoils the record: who loads waits for a step that records.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass

from partc.format.dtypes import Array
from partc.format.gpu_code import DIGEST_NAME
from partc.runtime.engines.gpu.contract import Content, DriverError, Start

_LIBRARY = "libcuda.so.1"
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: other threads may give memory back meanwhile."""
_SHARED_ATTRIBUTE, _USUAL_SHARED = 8, 48 * 1024
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which a function needs that asks for more than the usual."""
_NAME_BYTES = 256


@dataclass(frozen=True, eq=False)
class _Memory:
    """A part of the device's memory."""

    address: int
    size: int
    whole: _Memory | None = None
    """What it is a part of: that must live as long."""


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
        self._recording = threading.Lock()
        """Held while a list is recorded, and for what may not come between."""
        device, self._context, self._stream = c_int(), c_void_p(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGet", byref(device), c_int(0))
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, c_int(_NAME_BYTES), device)
        self.name = name.value.decode(errors="replace")
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._enter()
        self._call("cuStreamCreate", byref(self._stream), c_uint(0))

    def load(self, content: Content) -> _Module:
        """See `Driver`."""
        self._enter()
        handle = c_void_p()
        self._alone("cuModuleLoadData", byref(handle), c_char_p(content.data))
        module = _Module(handle)
        self._give_back(module, "cuModuleUnload", handle)
        address, size = c_uint64(), c_size_t()
        self._call(
            "cuModuleGetGlobal_v2", byref(address), byref(size), handle, c_char_p(DIGEST_NAME.encode())
        )
        found = (c_ubyte * len(content.digest))()
        if size.value == len(found):
            self._alone("cuMemcpyDtoH_v2", found, address, size)
        if bytes(found) != content.digest:
            raise DriverError("its kernels are not those of the plan")
        return module

    def allocate(self, size: int) -> _Memory:
        """See `Driver`."""
        self._enter()
        address = c_uint64()
        self._alone("cuMemAlloc_v2", byref(address), c_size_t(size))
        memory = _Memory(address.value or 0, size)
        self._give_back(memory, "cuMemFree_v2", c_uint64(memory.address))
        self.clear(memory)
        return memory

    def part(self, buffer: _Memory, offset: int, size: int) -> _Memory:
        """See `Driver`."""
        return _Memory(buffer.address + offset, size, buffer)

    def write(self, buffer: _Memory, array: Array) -> None:
        """See `Driver`."""
        self._enter()
        source, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self._alone("cuMemcpyHtoD_v2", c_uint64(buffer.address), source, size)

    def read(self, buffer: _Memory, array: Array) -> None:
        """See `Driver`."""
        self._enter()
        target, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        self._alone("cuMemcpyDtoH_v2", target, c_uint64(buffer.address), size)

    def clear(self, buffer: _Memory) -> None:
        """See `Driver`."""
        self._enter()
        self._alone("cuMemsetD8_v2", c_uint64(buffer.address), c_ubyte(0), c_size_t(buffer.size))

    def prepare(self, code: _Module, starts: Sequence[Start]) -> Callable[[], None]:
        """See `Driver`."""
        self._enter()
        graph, executable = c_void_p(), c_void_p()
        with self._recording:
            self._call("cuStreamBeginCapture_v2", self._stream, c_int(_RELAXED))
            try:
                for start in starts:
                    self._launch(code, start)
            finally:
                self._call("cuStreamEndCapture", self._stream, byref(graph))
        if hasattr(self._library, "cuGraphInstantiateWithFlags"):
            self._call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        else:  # before CUDA 11.4: a Jetson Nano has 10.2
            self._call("cuGraphInstantiate", byref(executable), graph, None, None, c_size_t(0))
        self._call("cuGraphDestroy", graph)
        recorded = _Graph(self, code, starts, executable)
        self._give_back(recorded, "cuGraphExecDestroy", executable)
        return recorded.run

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
        self._call("cuLaunchKernel", function, *sizes, self._stream, arguments, POINTER(c_void_p)())

    def _enter(self) -> None:
        """Every thread that calls has to say in which context."""
        self._call("cuCtxSetCurrent", self._context)

    def _give_back(self, made: object, name: str, handle: object) -> None:
        """Have the function called with the handle as soon as nobody has the object, by whatever thread."""
        weakref.finalize(made, _given_back, self._library, self._context, name, handle).atexit = False

    def _alone(self, name: str, *arguments: object) -> None:
        """A call that no list may be recorded beside."""
        with self._recording:
            self._call(name, *arguments)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DriverError(f"this driver of NVIDIA is too old: it has no {name}") from None
        if code := function(*arguments):
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


def _given_back(library: ctypes.CDLL, context: c_void_p, name: str, handle: object) -> None:
    library.cuCtxSetCurrent(context)
    getattr(library, name)(handle)
