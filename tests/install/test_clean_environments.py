"""Each extra in a clean environment of its own, installed from the wheel: the commands that it is for work there.

`tests/cli/test_extras.py` does the same in every run, with packages hidden; here none is there but what pip brings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.extras import OF_COMMAND, wheel_name
from partc.runtime.client.launch import launch_local
from partc.runtime.client.ring_file import told_in_file
from tests.cli.conftest import write_small
from tests.serve.server import make_build, serving

pytestmark = pytest.mark.install
ROOT = Path(__file__).resolve().parents[2]
Environment = Callable[[str], Path]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Makes the environment of an extra, or of none, and returns its folder of programs."""
    folder = Path(os.environ.get("PARTC_ENVIRONMENTS") or tmp_path_factory.mktemp("environments"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    wheel = folder / wheel_name()

    def make(extra: str) -> Path:
        place = folder / (extra or "device")
        programs = place / "bin"
        if not programs.exists():
            venv.create(place, with_pip=True)
        own = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([*own, "-c", str(ROOT / "constraints.txt"), wanted], check=True)
        subprocess.run([*own, "--no-deps", "--force-reinstall", str(wheel)], check=True)
        return programs

    return make


def call(programs: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program of that environment, which sees nothing of ours."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(programs / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    write_small(folder)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    build = make_build(tmp_path_factory.mktemp("ring"))
    with launch_local(build) as made, told_in_file(build, made.source, insecure=False):
        yield build


def test_a_device(environment: Environment) -> None:
    programs = environment("")
    assert call(programs, "partc-runner", "--help").returncode == 0
    for words in (["--version"], ["--help"], ["serve", "build"]):
        done = call(programs, "partc", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.match("error: this install has partc-runner alone; .*: pip install .*\\.whl", done.stderr)
        assert len(done.stderr.splitlines()) == 1


def test_a_device_with_onnxruntime(environment: Environment) -> None:
    programs = environment("ort")
    engine = "import onnxruntime, partc.runtime.engines.ort_session"
    assert call(programs, "python", "-c", engine).returncode == 0
    assert call(programs, "partc-runner", "--help").returncode == 0


def test_a_client(environment: Environment, ring: Path, compiled: Path) -> None:
    programs, build = environment("client"), str(ring)
    commands = {
        "run": [build, "--connect", "auto", "--prompt", "abc", "--tokens", "3"],
        "watch": [build, "--once"],
        "simulate": ["build"],
        "report": ["build", "-o", "report.html"],
        "move": ["build", "--submodules", "3", "--to", "board", "--dry-run"],
        "keys": ["build"],
        "deploy": ["build", "--to", "kubernetes", "--image", "partc:1"],
    }
    assert set(commands) == {name for name, extra in OF_COMMAND.items() if extra == "client"}
    for name, words in commands.items():
        done = call(programs, "partc", name, *words, cwd=compiled)
        assert done.returncode == (name == "move"), f"{name}: {done.stderr}"
        assert name != "move" or "board computes that already" in done.stderr


@pytest.mark.parametrize("extra", ["serve", "fleet"])
def test_an_endpoint(extra: str, environment: Environment, ring: Path) -> None:
    programs = environment(extra)
    with serving(ring, "--connect", "auto", python=str(programs / "python")) as server:
        assert server.complete(max_tokens=2)[0] == 200


def test_a_fleet(environment: Environment, tmp_path: Path) -> None:
    done = call(environment("fleet"), "partc", "fleet", "status", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "needs the package" not in done.stderr
