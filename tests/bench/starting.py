"""Starting: from the command line to the first token of `partc run`, and to the ring of `partc serve` that is ready.

    python -m tests.bench.starting --folder /tmp/speed [--model 1.1B] [--runner native] [--times 5] [--json FILE]

A Llama with random weights, int4 on target tvm, one device of one thread; the bundle of `tests.bench.speed` where the
folder is the same. Every start is a process of its own; files lie in the system's cache. Wall time, since that is what
one waits: let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.speed.make import Bundle, ensure
from tests.bench.speed.places import Cell

AIMS_S = {"run, first token": 0.8, "serve, ready": 1.0}
_PARTC = (sys.executable, "-m", "partc.cli")


def main() -> None:
    """Start each as often as was asked for; print medians, the least and the most."""
    parser = argparse.ArgumentParser(description="What starting takes.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", default="1.1B")
    parser.add_argument("--runner", choices=("native", "python"))
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files, cell = Bundle("tvm"), Cell((options.folder / options.model).resolve(), "int4", 1)
    ensure(files, cell)
    more = () if options.runner is None else ("--runner", options.runner)
    starts: dict[str, Callable[[], float]] = {
        "run, first token": lambda: run_s(files.path(cell), more),
        "serve, ready": lambda: serve_s(files.path(cell), more),
    }
    for start in starts.values():
        start()  # which brings the files into the cache
    found = {name: [start() for _ in range(options.times)] for name, start in starts.items()}
    for name, seconds in found.items():
        least, most, aim = min(seconds), max(seconds), AIMS_S[name]
        over = f", more than {aim} s" if statistics.median(seconds) > aim else ""
        print(f"{name}: {statistics.median(seconds):.2f} s [{least:.2f} - {most:.2f}]{over}")
    if options.json is not None:
        options.json.write_text(json.dumps(found))


def run_s(bundle: Path, more: tuple[str, ...]) -> float:
    """Seconds until `partc run` prints a token."""
    words = ("run", str(bundle), "--token-ids", "5", "--tokens", "1", "--no-record", *more)
    with subprocess.Popen([*_PARTC, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        began = time.perf_counter()
        process.stdout.read(1)
        return time.perf_counter() - began


def serve_s(bundle: Path, more: tuple[str, ...]) -> float:
    """Seconds until `partc serve` says that its ring is ready."""
    words = ("serve", str(bundle), "--port", "0", "--json", *more)
    with subprocess.Popen([*_PARTC, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        began = time.perf_counter()
        for line in process.stdout:
            if json.loads(line)["state"] == "ready":
                break
        took = time.perf_counter() - began
        process.send_signal(signal.SIGINT)
        return took


if __name__ == "__main__":
    main()
