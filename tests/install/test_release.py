"""The wheel with native runners in a clean environment: from its installation to a token, without `make native`."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs the extra `release`")
pytest.importorskip("cyclonedx", reason="needs the extra `release`")

from native.zig.__main__ import host_platform
from native.zig.compiling import ROOT, RUNNERS
from release.__main__ import make_release
from tests.install.test_clean_environments import call
from tests.serve.server import make_build

pytestmark = pytest.mark.install


def test_a_wheel_brings_what_runs_a_device(tmp_path: Path) -> None:
    platform = host_platform()
    if not (runner := ROOT / RUNNERS / platform / "partc-runner").is_file():
        pytest.skip("needs the native runner of this machine: make native")
    make_release(tmp_path / "dist", {platform: runner}, [])
    (wheel,) = (tmp_path / "dist").glob("partc-*manylinux*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    programs = tmp_path / "clean/bin"
    pip = ["python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    installed = call(programs, *pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[client]")
    assert installed.returncode == 0, installed.stderr

    find = "import partc; print(partc.__path__[0])"
    package = Path(call(programs, "python", "-c", find, cwd=tmp_path).stdout.strip())
    found = package / "runners" / platform / "partc-runner"
    assert found.is_relative_to(tmp_path / "clean")
    assert os.access(found, os.X_OK)
    build = make_build(tmp_path)
    for device in (build / "devices").iterdir():
        shutil.copy(found, device / "partc-runner")
    words = ["run", str(build), "--runner", "native", "--prompt", "abc", "--tokens", "3"]
    done = call(programs, "partc", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_manual_pages_are_where_man_looks_for_them(tmp_path: Path) -> None:
    """man follows PATH: beside `bin` of the active environment is `share/man`."""
    if shutil.which("man") is None:
        pytest.skip("needs man")
    (tmp_path / "runner").touch()
    make_release(tmp_path / "dist", {host_platform(): tmp_path / "runner"}, [])
    (wheel,) = (tmp_path / "dist").glob("partc-*manylinux*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    programs = tmp_path / "clean/bin"
    assert call(programs, "python", "-m", "pip", "install", "-q", "--no-deps", str(wheel)).returncode == 0
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    env.pop("MANPATH", None)
    for name in ("partc", "partc-compile", "partc-runner"):
        done = subprocess.run(["man", "-w", name], env=env, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()) == tmp_path / f"clean/share/man/man1/{name}.1"
