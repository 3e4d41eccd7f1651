"""A contestant in a process of its own: asked in words, a line each, it answers in JSON, a line each.

    python -m tests.bench.speed.worker ENGINE PATH THREADS PROCESSES FORMAT EXPECTED.npy [--small-pages]

It says `{}` when the model is loaded and its logits are as expected, as far as weights in that format allow.
Then `prefill`, `decode TOKENS CONTEXT` and what else the engine has bring `{"wall_s": …, "cpu_s": …}`, until standard
input ends. With --small-pages neither it nor what it starts gets pages larger than 4 KiB.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.bench.speed.outputs import MOST, error

_PR_SET_THP_DISABLE = 41
"""Of prctl(2): no transparent huge pages, in this process and those that it starts."""


def main(
    engine: str, path: str, threads: str, processes: str, kind: str, expected: str, *options: str
) -> None:
    """Load, be judged, and answer."""
    if "--small-pages" in options and ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise SystemExit("Linux does not turn off huge pages here")
    with _own_output() as out:
        module = import_module(f"tests.bench.speed.engines.{engine}")
        model: Any = module.load(Path(path), int(threads), int(processes))
        try:
            _judge(model, kind, Path(expected))
            print("{}", file=out)
            for line in sys.stdin:
                word, *numbers = line.split()
                sample = getattr(model, word)(*map(int, numbers))
                print(json.dumps(asdict(sample)), file=out)
        finally:
            if hasattr(model, "close"):
                model.close()


def _judge(model: Any, kind: str, expected: Path) -> None:
    """Whoever computes in steps has logits to show; a ring has tokens alone, of an engine that is judged here, too."""
    if not hasattr(model, "answers"):
        return
    found = error(model.answers(), np.load(expected))
    if not found <= MOST[kind]:
        raise SystemExit(f"its logits are off by {found:.3f} of their size, {MOST[kind]} is allowed")


@contextmanager
def _own_output() -> Iterator[IO[str]]:
    """Standard output for answers alone; what libraries print there goes to standard error."""
    with os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)
        yield out


if __name__ == "__main__":
    main(*sys.argv[1:])
