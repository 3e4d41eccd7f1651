"""Bundles as files: the same bytes wherever and whenever they are compiled, and never half of one."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from partc.errors import PartcError
from partc.format.files import verify_files
from partc.format.role import load_role
from tests.families.check import devices_file

pytestmark = [pytest.mark.hf, pytest.mark.ort]

KILLS = (2, 20)
"""The numbers of compiles that are killed, in every run and in the slow tier; each takes about as long as a compile."""
ROOT = Path(__file__).parents[2]
MODEL = """\
model:
  seed: 1
  config: {model_type: llama, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 96, vocab_size: 200, max_position_embeddings: 128}
max_sequence: 64
"""


def _project(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(MODEL)
    devices_file(folder, 3)
    return folder


def _start(folder: Path, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "partc.cli", "compile", "model.yaml", "--target", "devices3.yaml"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, "--strategy", "even", "-o", "build"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _digests(build: Path) -> dict[str, str]:
    """The hash of every file but keys and runs."""
    files = sorted(path for path in build.rglob("*") if path.is_file())
    kept = [path for path in files if not {"keys", "runs"} & set(path.relative_to(build).parts)]
    return {str(path.relative_to(build)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def _looks_complete(build: Path) -> bool:
    return (build / "plan.json").exists() or any(build.glob("devices/*/build.json"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """The hashes of a build, and the seconds that its compile took."""
    folder = _project(tmp_path_factory.mktemp("bundles") / "here")
    began = time.monotonic()
    assert _start(folder, 1).wait() == 0
    return _digests(folder / "build"), time.monotonic() - began


def test_two_compiles_give_the_same_bytes(undisturbed: tuple[dict[str, str], float], tmp_path: Path) -> None:
    time.sleep(1.1)  # another second on the clock, should one have crept in
    folder = _project(tmp_path / "there/deeper with a space")
    assert _start(folder, 2).wait() == 0
    digests = _digests(folder / "build")
    assert digests == undisturbed[0]
    assert any(name.endswith(".safetensors") for name in digests)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("kills", [KILLS[0], pytest.param(KILLS[1], marks=pytest.mark.slow)])
def test_a_killed_compile_leaves_nothing_that_looks_complete(
    kills: int, undisturbed: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    right, whole_s = undisturbed
    folder = _project(tmp_path / "project")
    moments = random.Random(5)
    for _ in range(kills):
        # Most of the time goes by before anything is written; the end is where it matters.
        process = _start(folder, 0)
        time.sleep(whole_s * moments.triangular(0.3, 1.05, 0.95))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if _looks_complete(folder / "build"):
            _assert_complete(folder / "build")
    assert _start(folder, 0).wait() == 0
    assert _digests(folder / "build") == right
    assert [path.name for path in folder.iterdir() if "partial" in path.name] == []


def _assert_complete(build: Path) -> None:
    for file in sorted(build.glob("devices/*/build.json")):
        try:
            verify_files(file.parent, load_role(file.parent).files)
        except PartcError as error:
            pytest.fail(f"half a bundle: {error}")
    assert (build / "plan.json").exists()
    assert len(list(build.glob("devices/*/build.json"))) == 3
