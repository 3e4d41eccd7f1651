"""Loading beside the work: what came of each job, and what is left of one that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from partc.errors import BundleError, RunError
from partc.format.build import FileEntry
from partc.runtime.core.commands import Load
from partc.runtime.core.events import Loaded, LoadFailed
from partc.runtime.shell.loader import Loader, Outcome
from tests.runtime.roles import chain, roles_of


class Engine:
    """Loads everything but `broken`, each sub-module into a set."""

    def __init__(self, broken: str, error: BaseException) -> None:
        self.broken, self.error = broken, error
        self.loaded: set[str] = set()

    def load(self, name: str) -> None:
        if name == self.broken:
            raise self.error
        self.loaded.add(name)

    def release(self, name: str) -> None:
        self.loaded.discard(name)


def outcome(loader: Loader) -> Outcome:
    """The outcome of the job that is under way."""
    loader.told.settimeout(10.0)
    (found,) = loader.results()
    return found


def test_a_beginning_that_the_memory_is_too_small_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = Engine("p1", MemoryError())
    monkeypatch.setattr("partc.runtime.shell.loader.make_engine", lambda *_: engine)
    role = roles_of(chain("a p0, b p1, c p2"))["b"]
    loader = Loader(role.changed(files={"": FileEntry("", 0)}), tmp_path, is_checked=True)
    loader.begin()
    try:
        with pytest.raises(RunError, match="there is not enough memory"):
            outcome(loader)
    finally:
        loader.end()


@pytest.mark.parametrize(
    ("error", "message"),
    [(BundleError("damaged"), "damaged"), (MemoryError(), "there is not enough memory")],
)
def test_a_job_that_fails_leaves_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    engine: Any = Engine("p3", error)
    monkeypatch.setattr("partc.runtime.shell.loader.make_engine", lambda *_: engine)
    role = roles_of(chain("a p0, b p1, c p2 p3"), others=[chain("a p0, b p1 p2 p3")])["b"]
    loader = Loader(role.changed(files={"": FileEntry("", 0)}), tmp_path, is_checked=True)
    loader.begin()
    try:
        assert outcome(loader) == Loaded()
        loader.add(Load(1, ("p2", "p3")))
        failed = outcome(loader)
        assert isinstance(failed, LoadFailed)
        assert failed.error.message == message
        assert engine.loaded == {"p1"}
    finally:
        loader.end()
