"""Memory of runners beside that of their plan."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from partc.runtime.client.launch import LocalRing, launch_local
from tests.runtime.bundles import language_model

PART, LEAST = 0.05, 10e6
"""A runner may take so much more than planned: this part of it, or so many bytes if that is more."""
_PERIOD_S = 0.2


def held(pid: int, folder: Path) -> float:
    """Bytes of a process: what is no file, and what it has mapped of the bundle. Libraries are left out."""
    total = 0
    for text in re.split(r"\n(?=[0-9a-f]+-)", Path(f"/proc/{pid}/smaps").read_text()):
        sizes = {
            key: int(size) for key, size in re.findall(r"^(Rss|Anonymous): +(\d+) kB$", text, re.MULTILINE)
        }
        mapped = str(folder) in text.partition("\n")[0]
        total += sizes.get("Rss" if mapped else "Anonymous", 0)
    return total * 1024


def idle() -> float:
    """What a runner needs that has nearly no model, bytes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        launch_local(bundle := language_model().write(Path(folder))) as ring,
        ring.client() as client,
    ):
        client.generate([1, 2], 2)
        return max(held(pid, bundle) for pid in ring.pids.values())


def allowed(planned: float, least: float = LEAST) -> float:
    """Bytes that a runner may take which is planned to take `planned`."""
    return planned + max(PART * planned, least)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of the runners of one device, in all trials."""

    device: str
    planned: float
    """Bytes."""
    peak: float
    """Bytes beyond those of a runner without a model."""

    @property
    def is_kept(self) -> bool:
        """Whether it held no more than planned."""
        return self.peak <= allowed(self.planned)


def memory_uses(planned: Mapping[str, float], peaks: Mapping[str, float], base: float) -> list[MemoryUse]:
    """Each device whose runners were looked at; `base` is what a runner holds without a model."""
    return [MemoryUse(name, planned[name], peak - base) for name, peak in sorted(peaks.items())]


class Peaks:
    """The most bytes that each runner of a ring holds, processes that are started again included.

    A thread looks at all of them all the time; it begins and ends as a context manager.
    """

    def __init__(self, ring: LocalRing, folder: Path) -> None:
        """`folder` is that of the build."""
        self._ring, self._folder = ring, folder
        self.bytes: dict[str, float] = {}
        """Device → bytes."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peaks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()

    def look(self) -> None:
        """Note what is held now."""
        for name, pid in dict(self._ring.pids).items():
            try:
                size = held(pid, self._folder)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just died
            self.bytes[name] = max(size, self.bytes.get(name, 0.0))

    def _watch(self) -> None:
        while not self._ends.wait(_PERIOD_S):
            self.look()


def largest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The larger number for each device."""
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}
