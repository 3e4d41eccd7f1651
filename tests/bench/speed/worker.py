"""A contestant in a process of its own: asked in words, a line each, it answers in JSON, a line each.

    python -m tests.bench.speed.worker ENGINE PLACE FORMAT THREADS PROCESSES

It says `{}` when the model is loaded. Then `prefill`, `decode N` and what else the engine has bring
`{"wall_s": …, "cpu_s": …}`, until standard input ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import IO, Any


def main(engine: str, place: str, kind: str, threads: str, processes: str) -> None:
    """Load and answer."""
    with _own_output() as out:
        module = import_module(f"tests.bench.speed.engines.{engine}")
        model: Any = module.load(Path(place), kind, int(threads), int(processes))
        try:
            print("{}", file=out)
            for line in sys.stdin:
                word, *numbers = line.split()
                sample = getattr(model, word)(*map(int, numbers))
                print(json.dumps(asdict(sample)), file=out)
        finally:
            if hasattr(model, "close"):
                model.close()


@contextmanager
def _own_output() -> Iterator[IO[str]]:
    """Standard output for answers alone; what libraries print there goes to standard error."""
    with os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)
        yield out


if __name__ == "__main__":
    main(*sys.argv[1:])
