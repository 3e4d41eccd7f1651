"""Calls of Python's engine in a process of its own: `python -m tests.native.python_calls FOLDER SEED`.

Prints the digest of what came of them. Sub-modules are loaded and released in threads that do nothing else.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from partc.format.role import load_role
from partc.runtime.engines.contract import make_engine
from tests.native.test_engines import act


class LoadedElsewhere:
    """An engine each of whose sub-modules is loaded and released by a thread of its own."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def load(self, submodule: str) -> None:
        _elsewhere(self._engine.load, submodule)

    def release(self, submodule: str) -> None:
        _elsewhere(self._engine.release, submodule)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _elsewhere(act: Callable[[str], None], submodule: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act, submodule).result()


def digest(found: Sequence[bytes | str]) -> str:
    """Of what calls gave."""
    parts = [part.encode() if isinstance(part, str) else part for part in found]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def main(folder: Path, seed: int) -> None:
    role = load_role(folder)
    found = act(LoadedElsewhere(make_engine(role, folder)), role, seed)
    sys.stdout.write(digest(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
