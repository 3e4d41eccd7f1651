"""Calls of Python's engine in a process of its own: `python -m tests.native.python_calls FOLDER SEED`.

Prints the digest of what came of them. Sub-modules are loaded and released in another thread than they are run in.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from partc.format.role import load_role
from partc.runtime.engines.contract import make_engine
from tests.native.test_engines import act


class LoadedElsewhere:
    """An engine whose sub-modules another thread loads."""

    def __init__(self, engine: Any, pool: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._pool = pool

    def load(self, submodule: str) -> None:
        self._pool.submit(self._engine.load, submodule).result()

    def release(self, submodule: str) -> None:
        self._pool.submit(self._engine.release, submodule).result()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def digest(found: Sequence[bytes | str]) -> str:
    """Of what calls gave."""
    parts = [part.encode() if isinstance(part, str) else part for part in found]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def main(folder: Path, seed: int) -> None:
    role = load_role(folder)
    with ThreadPoolExecutor(1) as pool:
        found = act(LoadedElsewhere(make_engine(role, folder), pool), role, seed)  # type: ignore[arg-type]
    sys.stdout.write(digest(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
