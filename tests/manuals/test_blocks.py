"""Every block of commands of README and manuals, run as its reader would: in order, in a folder of the reader's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.manuals.blocks import ROOT, Block, blocks_of, manuals
from tests.manuals.surroundings import OVERLAP, Surroundings, around, make_folder

WITH_BLOCKS = [path for path in manuals() if any(_.has_commands and not _.reason for _ in blocks_of(path))]
_LIMIT_S = 900
_ENDED = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
"""Processes that a block starts in the background end with it, and leave their output."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The build of a reader whose devices.yaml has some lines more."""

    @cache
    def make(more: str) -> Path:
        made = make_folder(tmp_path_factory.mktemp("reader"), more)
        _run(made, "partc compile model.yaml --target devices.yaml -o build", "the build of the reader")
        return made.folder / "build"

    return make


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.hf
@pytest.mark.serve
@pytest.mark.parametrize("manual", WITH_BLOCKS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_run(manual: Path, build: Callable[[str], Path], tmp_path: Path) -> None:
    name = manual.relative_to(ROOT).as_posix()
    more = OVERLAP.get(name, "")
    made = make_folder(tmp_path, more)
    shutil.copytree(build(more), tmp_path / "build")
    blocks = blocks_of(manual)
    with around(name, made):
        for block in blocks:
            if block.placed:
                place = tmp_path / block.placed
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(made.adapt(block.text))
        for block in blocks:
            if block.has_commands and not block.reason:
                _run(made, block.script, f"{name}:{block.line}")


def _run(made: Surroundings, script: str, where: str) -> None:
    """Run a script to its end; what it leaves behind in the background is ended."""
    env = {**os.environ, "PATH": f"{made.folder / '.programs'}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", _ENDED + made.adapt(script)],
        cwd=made.folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=_LIMIT_S)
    finally:
        _end(process.pid)
    assert process.returncode == 0, f"{where}\n{told}"


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_reasons_are_few_and_said() -> None:
    """Blocks that are not run: a list that a reviewer sees."""
    skipped = {
        f"{block.manual}: {block.reason}" for path in manuals() for block in _commands(path) if block.reason
    }
    ran = [block for path in manuals() for block in _commands(path) if not block.reason]
    assert len(ran) > len(skipped) / 2
    assert all(len(reason) > 20 for reason in skipped)


def _commands(path: Path) -> list[Block]:
    return [block for block in blocks_of(path) if block.has_commands]


def test_surroundings_have_programs(tmp_path: Path) -> None:
    made = make_folder(tmp_path)
    _run(
        made,
        "partc --version && partc-runner --help > help.txt && pip install nothing-of-this-name",
        "programs",
    )
    with pytest.raises(AssertionError, match="no-such"):
        _run(made, "partc no-such", "a negative control")
    assert shutil.which("bash")
