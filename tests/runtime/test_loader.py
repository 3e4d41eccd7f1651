"""Loading beside the work: what came of each job, and what is left of one that failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from partc.errors import BundleError, RunError
from partc.format.build import FileEntry
from partc.format.role import Role
from partc.runtime.core.commands import Load
from partc.runtime.core.events import Loaded, LoadFailed
from partc.runtime.shell.loader import Loader, Outcome
from tests.runtime.roles import chain, roles_of


class Engine:
    """Loads everything but `broken`, each sub-module into a set; it has `pieces` to settle, and says what it did."""

    def __init__(self, broken: str, error: BaseException, pieces: int = 0) -> None:
        self.broken, self.error, self.pieces = broken, error, pieces
        self.loaded: set[str] = set()
        self.did: list[str] = []
        self.settles = threading.Event()

    def load(self, name: str) -> None:
        if name == self.broken:
            raise self.error
        self.loaded.add(name)
        self.did.append(name)

    def settle(self) -> bool:
        if not self.pieces:
            return False
        self.settles.set()
        time.sleep(0.002)
        self.pieces -= 1
        self.did.append("piece")
        return True

    def release(self, name: str) -> None:
        self.loaded.discard(name)


def outcome(loader: Loader) -> Outcome:
    """The outcome of the job that is under way."""
    loader.told.settimeout(10.0)
    (found,) = loader.results()
    return found


@contextmanager
def loading(engine: Engine, role: Role, folder: Path) -> Iterator[Loader]:
    """A loader that has begun with this engine, and ends with the block; its files are not looked at."""
    with patch("partc.runtime.shell.loader.make_engine", lambda *_: engine):
        loader = Loader(role.changed(files={"": FileEntry("", 0)}), folder, is_checked=True)
        loader.begin()
        try:
            yield loader
        finally:
            loader.end()


def test_a_beginning_that_the_memory_is_too_small_for(tmp_path: Path) -> None:
    engine = Engine("p1", MemoryError())
    role = roles_of(chain("a p0, b p1, c p2"))["b"]
    with (
        loading(engine, role, tmp_path) as loader,
        pytest.raises(RunError, match="there is not enough memory"),
    ):
        outcome(loader)


@pytest.mark.parametrize(
    ("error", "message"),
    [(BundleError("damaged"), "damaged"), (MemoryError(), "there is not enough memory")],
)
def test_a_job_that_fails_leaves_nothing_in_memory(
    tmp_path: Path, error: BaseException, message: str
) -> None:
    engine = Engine("p3", error)
    role = roles_of(chain("a p0, b p1, c p2 p3"), others=[chain("a p0, b p1 p2 p3")])["b"]
    with loading(engine, role, tmp_path) as loader:
        assert outcome(loader) == Loaded()
        loader.add(Load(1, ("p2", "p3")))
        failed = outcome(loader)
        assert isinstance(failed, LoadFailed)
        assert failed.error.message == message
        assert engine.loaded == {"p1"}


def test_the_engine_settles_while_there_is_no_job(tmp_path: Path) -> None:
    """A sub-module that is wanted meanwhile waits for one piece, and not for all of them; the rest comes after it."""
    engine = Engine("", RuntimeError(), pieces=200)
    role = roles_of(chain("a p0, b p1, c p2"))["b"]
    with loading(engine, role, tmp_path) as loader:
        assert outcome(loader) == Loaded()
        assert engine.settles.wait(10.0)
        loader.add(Load(1, ("p1",)))
        assert outcome(loader) == Loaded(1)
        assert engine.pieces > 0
        end = time.monotonic() + 10.0
        while engine.pieces and time.monotonic() < end:
            time.sleep(0.01)
        assert not engine.pieces
        assert engine.did.index("p1") < engine.did.index("piece")
        assert "piece" in engine.did[engine.did.index("p1", engine.did.index("piece")) :]
        assert not loader.is_busy


def test_a_loader_that_settles_ends_at_once(tmp_path: Path) -> None:
    engine = Engine("", RuntimeError(), pieces=100_000)
    role = roles_of(chain("a p0, b p1, c p2"))["b"]
    with loading(engine, role, tmp_path):
        assert engine.settles.wait(10.0)
    assert engine.pieces > 0
