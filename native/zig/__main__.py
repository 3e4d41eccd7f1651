"""Builds runners: `python -m native.zig [PLATFORM ...]`, without a name the one of this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
from pathlib import Path

from native.zig.compiling import PLATFORMS, ROOT, RUNNERS, SOURCES, CompileError, build, stage_files
from native.zig.sources import FetchError, fetch

_HOSTS = {"x86_64": "x86_64-linux", "aarch64": "aarch64-linux-gnu"}


def main() -> int:
    """Fetch, compile and link; tells what is done, and how large it is."""
    parser = argparse.ArgumentParser(prog="python -m native.zig", description=__doc__)
    parser.add_argument("platforms", metavar="PLATFORM", nargs="*", help=", ".join(PLATFORMS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="files at a time")
    parser.add_argument("--zmq", action="store_true", help="with libzmq as a second transport, to compare")
    given = parser.parse_args()
    unknown = [name for name in given.platforms if name not in PLATFORMS]
    if unknown:
        parser.error(f"there is no platform {unknown[0]!r}; known: {', '.join(PLATFORMS)}")
    try:
        fetch(ROOT / SOURCES, ["libsodium", *(["libzmq"] if given.zmq else [])])
        for name in given.platforms or [host_platform()]:
            _report(name, given.jobs, given.zmq)
    except (CompileError, FetchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _report(name: str, jobs: int, zmq: bool) -> None:
    start = time.monotonic()
    is_new = build(name, _zig(), jobs, zmq=zmq)
    took = f"{time.monotonic() - start:.0f} s" if is_new else "up to date"
    for file in ("partc-runner", *stage_files(PLATFORMS[name])):
        print(f"{RUNNERS / name / file}: {(ROOT / RUNNERS / name / file).stat().st_size:,} bytes, {took}")


def host_platform() -> str:
    """The platform of this machine."""
    if platform.machine() not in _HOSTS:
        raise CompileError(f"there is no runner for {platform.machine()}; known: {', '.join(PLATFORMS)}")
    return _HOSTS[platform.machine()]


def _zig() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CompileError("zig is not installed: pip install ziglang, or make native")
    return Path(spec.origin).parent / "zig"


if __name__ == "__main__":
    sys.exit(main())
