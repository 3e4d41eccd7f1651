"""Files that are complete or absent, and scratch folders that no killed process leaves for ever."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc import atomic, scratch
from partc.bundle import resume, workspace
from partc.bundle.resume import write_record
from partc.bundle.workspace import commit, open_workspace
from partc.format.build import EngineSpec
from partc.pipeline.contract import Artifact

ROOT = Path(__file__).parents[1]
MOVES = {"partc/atomic.py", "partc/bundle/workspace.py", "partc/kept.py"}
"""The files that rename."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Files that are flushed and moved, in order."""
    made: list[str] = []
    flush, rename, replace = os.fsync, os.rename, os.replace

    def noted_flush(descriptor: int) -> None:
        made.append(f"flush {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        flush(descriptor)

    def noted_move(source: Path, target: Path, **_: object) -> None:
        made.append(f"move to {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_flush)
    monkeypatch.setattr(os, "rename", noted_move)
    monkeypatch.setattr(os, "replace", noted_move)
    yield made
    monkeypatch.setattr(os, "replace", replace)


def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_end(
    calls: list[str], tmp_path: Path
) -> None:
    atomic.write_file(tmp_path / "it", "text\n", mode=0o600)
    assert (tmp_path / "it").read_text() == "text\n"
    assert (tmp_path / "it").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    first, second, third = calls
    assert first.startswith("flush .it-")
    assert (second, third) == ("move to it", f"flush {tmp_path.name}")


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic.write_file(tmp_path / "it", "before")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(OSError, match="full"):
        atomic.write_file(tmp_path / "it", "behind")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("it", "before")]


def _full(descriptor: int) -> None:
    raise OSError("full")


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = os.fsync

    def files_alone(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(22, "Invalid argument")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    atomic.write_file(tmp_path / "it", "text")
    assert (tmp_path / "it").read_text() == "text"


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("can_exchange", [False, True])
def test_a_build_is_on_the_disk_before_it_gets_its_name(
    is_there: bool, can_exchange: bool, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "build"
    if is_there:
        (output / "devices").mkdir(parents=True)
        (output / "plan.json").write_text("old")
    if not can_exchange:
        monkeypatch.setattr(workspace, "_exchange", lambda first, second: False)
    with open_workspace(output) as made:
        (made.folder / "devices" / "a").mkdir(parents=True)
        (made.folder / "devices" / "a" / "weights").write_text("w")
        (made.folder / "plan.json").write_text("new")
        commit(made, output)
    assert (output / "plan.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
    flushed = calls[: 1 + calls.index("flush devices")]
    assert "flush weights" in flushed and "flush a" in flushed, "files, then the folders that name them"
    assert calls[-1] == f"flush {tmp_path.name}"
    moves = [number for number, call in enumerate(calls) if call.startswith("move")]
    assert all(calls.index("flush plan.json") < number for number in moves)


def test_a_device_is_on_the_disk_before_its_record(calls: list[str], tmp_path: Path) -> None:
    (tmp_path / "devices" / "a").mkdir(parents=True)
    (tmp_path / "devices" / "a" / "weights").write_text("w")
    record = resume.Record("", Artifact((), EngineSpec("null", "cpu", 1), {}), {}, {}, {})
    write_record(tmp_path, "a", record)
    assert calls.index("flush weights") < calls.index("move to a.json")


def test_renames_are_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("partc", "passes", "targets")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _renames(node)
    }
    assert found == MOVES


def _renames(call: ast.Call) -> bool:
    """`a.rename(b)`, `a.replace(b)`, `os.replace(a, b)`, `shutil.move(a, b)`; `replace` of a text has two texts."""
    if not isinstance(call.func, ast.Attribute):
        return False
    is_module = isinstance(call.func.value, ast.Name) and call.func.value.id in ("os", "shutil")
    if is_module:
        return call.func.attr in ("rename", "replace", "move", "renames")
    return call.func.attr == "rename" or (
        call.func.attr == "replace" and len(call.args) == 1 and not call.keywords
    )


# -- scratch folders

_MAKES = """
import sys, time
from partc.scratch import scratch_folder
with scratch_folder("test") as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch._remove_leftovers.cache_clear()
    yield tmp_path
    scratch._remove_leftovers.cache_clear()


def _begun() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", _MAKES], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(there: Path) -> None:
    killed, left = _begun()
    alive, used = _begun()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    foreign, build = there / "partc-scratch-notes.txt", there / "partc-build"
    foreign.write_text("no folder")
    build.mkdir(mode=0o700)
    assert left.exists(), "nobody cleans up after kill -9"
    with scratch.scratch_folder("test") as own:
        found = {path.name for path in there.iterdir()}
        assert found == {used.name, own.name, foreign.name, build.name}, "only scratch folders go"
    assert not own.exists()
    alive.kill()
    alive.communicate()


def test_scratch_folders_are_made_in_one_place() -> None:
    made = {
        str(path.relative_to(ROOT))
        for folder in ("partc", "passes", "targets")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if any(name in path.read_text(encoding="utf-8") for name in ("mkdtemp(", "TemporaryDirectory("))
    }
    assert made == {"partc/scratch.py", "partc/cluster/demo.py"}, (
        "Ray's sockets need a short path of their own"
    )
