"""Devices of a local ring that become so many times slower, from one moment to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_SITE = """\
import sys

if "partc.runtime" in sys.orig_argv:
    import os, time
    from pathlib import Path
    from partc.runtime.engines import contract

    inner = contract.make_engine

    def make_engine(role, place):
        engine = inner(role, place)
        kind = type(engine)
        run, file, read_at, factor = kind.run, Path(os.environ["THROTTLE"], role.device), 0.0, 1.0

        def throttled(*given):
            nonlocal read_at, factor
            began, computed = time.perf_counter(), time.thread_time()
            outputs = run(*given)
            took, computed = time.perf_counter() - began, time.thread_time() - computed
            if began > read_at + 0.01:
                read_at, factor = began, float(file.read_text()) if file.exists() else 1.0
            if factor > 1:
                time.sleep(max(0.0, factor * computed - took))
            return outputs

        kind.run = throttled
        return engine

    contract.make_engine = make_engine
"""
"""Sleeps in proportion to what each run computed; so the machine's other processes have the core meanwhile."""


class Throttle:
    """The speeds of devices; runners that are started with `env` follow them."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for its files; all devices have their own speed."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (folder / "sitecustomize.py").write_text(_SITE)

    @property
    def env(self) -> Mapping[str, str]:
        """Variables of the runners."""
        return {"PYTHONPATH": str(self._folder), "THROTTLE": str(self._folder)}

    def slow(self, device: str, factor: float) -> None:
        """Let every run of a sub-module take so many times as long from now on."""
        fresh = self._folder / f"{device}.new"
        fresh.write_text(str(factor))
        fresh.replace(self._folder / device)
