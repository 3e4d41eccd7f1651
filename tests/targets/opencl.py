"""Devices whose GPU is reached through OpenCL; with PoCL the processor stands in for it."""

from __future__ import annotations

from partc.config.devices import DeviceConfig, DevicesConfig, Link


def on_opencl(*names: str, chunks: tuple[int, ...] = ()) -> DevicesConfig:
    """Devices of these names that compute so, the first one the source.

    There is code for steps of the least and the largest size and for `chunks`: PoCL takes long to compile it.
    """
    options = {"chunks": chunks, "batches": ()}
    devices = {
        name: DeviceConfig(name, "tvm", "x86_64", 1e9, 1e9, 2**30, provider="opencl", options=options)
        for name in names
    }
    return DevicesConfig(names[0], devices, default_link=Link(1e8, 0.001))
