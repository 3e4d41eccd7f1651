"""A network for local rings: every device in a namespace of its own, links of a rate and a latency.

Linux only, as root, with iproute2: `ip netns` and TUN devices; no queueing discipline of the kernel holds bytes back
as a distance does. A process forwards the packets of all devices: each directed link has its own queue, sends at its
rate, and delivers a packet the latency after it has been sent.
"""

from __future__ import annotations

import fcntl
import heapq
import multiprocessing
import os
import select
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_SUBNET = "10.77.0"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MTU = 9000
_DESTINATION = 19
"""Offset of the last byte of an IPv4 packet's destination."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Of every link between two devices."""

    bytes_per_s: float
    latency_s: float = 0.0


class Network:
    """Namespaces and links for some devices; this process reaches all of them at once, at any speed.

    A context manager that removes all of it.
    """

    def __init__(self, devices: Sequence[str], speed: Speed) -> None:
        """Nothing is there yet; `devices` become hosts 2, 3, ... of a subnet, and this process is host 1."""
        self._hosts = {name: number for number, name in enumerate(devices, 2)}
        self._speed = speed
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            ends = {1: stack.enter_context(_Tunnel(_SUBNET, 1, None))}
            for name, host in self._hosts.items():
                ends[host] = stack.enter_context(_Tunnel(_SUBNET, host, self.namespace(name)))
            router = multiprocessing.get_context("fork").Process(
                target=_forward,
                args=({host: end.file for host, end in ends.items()}, self._speed),
                daemon=True,
            )
            router.start()
            stack.callback(router.join)
            stack.callback(router.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def namespace(self, device: str) -> str:
        """The name by which `ip netns` knows it."""
        return f"partc-{os.getpid()}-{device}"

    def listen(self, port: int = 5555) -> Mapping[str, str]:
        """Device → HOST:PORT."""
        return {name: f"{_SUBNET}.{host}:{port}" for name, host in self._hosts.items()}

    def command(self, device: str, program: Sequence[str]) -> list[str]:
        """The command that starts a program on a device."""
        return ["ip", "netns", "exec", self.namespace(device), *program]


class _Tunnel:
    """One end of the network: a TUN device in a namespace, and the file through which its packets go."""

    def __init__(self, subnet: str, host: int, namespace: str | None) -> None:
        self._subnet, self._host, self._namespace = subnet, host, namespace
        self.file = -1

    def __enter__(self) -> Self:
        name = f"partc{self._host}"
        self.file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.file, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
        where: list[str] = []
        if self._namespace:
            _ip("netns", "add", self._namespace)
            _ip("link", "set", name, "netns", self._namespace)
            where = ["-n", self._namespace]
            _ip(*where, "link", "set", "lo", "up")
        _ip(*where, "addr", "add", f"{self._subnet}.{self._host}/24", "dev", name)
        _ip(*where, "link", "set", name, "mtu", str(_MTU), "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.file)
        if self._namespace:
            _ip("netns", "delete", self._namespace)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _forward(files: Mapping[int, int], speed: Speed) -> None:
    """Pass on what all hosts send, for ever; what host 1 sends and gets is not held back."""
    waiting: list[tuple[float, int, int, bytes]] = []
    free: dict[tuple[int, int], float] = {}
    number, host_of = 0, {file: host for host, file in files.items()}
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for file in select.select(list(host_of), (), (), timeout)[0]:
            packet = os.read(file, _MTU)
            sender, receiver = host_of[file], packet[_DESTINATION]
            if packet[0] >> 4 != 4 or receiver not in files:
                continue
            due = time.monotonic()
            if 1 not in (sender, receiver):
                sent = max(due, free.get((sender, receiver), 0.0)) + len(packet) / speed.bytes_per_s
                free[sender, receiver] = sent
                due = sent + speed.latency_s
            heapq.heappush(waiting, (due, number := number + 1, receiver, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, receiver, packet = heapq.heappop(waiting)
            os.write(files[receiver], packet)
