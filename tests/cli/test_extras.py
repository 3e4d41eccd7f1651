"""Each extra is enough for the commands that it is for; without it one line says what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc import __version__, extras
from partc.cli.main import COMMANDS, exit_code, run
from partc.extras import COMPILE, OF_COMMAND, extra_of, install_command, modules_of, requirements
from partc.runtime.client.launch import launch_local
from partc.runtime.client.ring_file import told_in_file
from tests.cli.conftest import write_small
from tests.serve.server import make_build, serving
from tests.without_packages import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
TEXT = ("run", "{}", "--connect", "auto", "--prompt", "abc", "--tokens", "3")


def partc(extra: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command line where that extra is installed and no other."""
    env = {**os.environ, VARIABLE: extra, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "tests.without_packages", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=120)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The build of a ring that runs, with a tokenizer."""
    build = make_build(tmp_path_factory.mktemp("extras"))
    with launch_local(build) as made, told_in_file(build, made.source, insecure=False):
        yield str(build)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a build that the compiler made."""
    folder = tmp_path_factory.mktemp("compiled")
    write_small(folder)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder


@pytest.mark.serve
@pytest.mark.parametrize("command", [TEXT, ("watch", "{}", "--once")], ids=["run", "watch"])
def test_a_client_of_a_running_ring(ring: str, command: tuple[str, ...]) -> None:
    done = partc("client", *(word.format(ring) for word in command))
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "error" not in done.stderr


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "build"),
        ("report", "build", "-o", "report.html"),
        ("move", "build", "--submodules", "3", "--to", "board", "--dry-run"),
        ("keys", "build"),
        ("deploy", "build", "--to", "kubernetes", "--image", "partc:1"),
    ],
    ids=lambda command: str(command[0]),
)
def test_a_reader_of_a_build(compiled: Path, command: tuple[str, ...]) -> None:
    done = partc("client", *command, cwd=compiled)
    assert done.returncode == (command[0] == "move"), done.stderr
    assert command[0] != "move" or "board computes that already" in done.stderr


@pytest.mark.serve
def test_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "serve")
    with serving(make_build(tmp_path), program="tests.without_packages") as server:
        status, answer = server.complete(max_tokens=3)
        assert status == 200, answer


def test_a_fleet_needs_its_own_extra_alone(tmp_path: Path) -> None:
    """Up to Ray, which few machines of developers have."""
    script = (
        "import sys, tests.without_packages as without\n"
        "without.hide('fleet'); sys.modules['ray'] = None\n"
        "import partc.config.fleet, partc.config.demand, partc.cluster.posts, partc.cli.fleet, partc.cli.fleet_state\n"
        "import partc.cluster.demo, partc.serve.app\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["serve", "x"]], ids=str)
def test_a_device_says_in_a_line_what_to_install(arguments: list[str]) -> None:
    done = partc("", *arguments)
    extra = OF_COMMAND.get(arguments[0] if arguments else "", COMPILE)
    assert (done.returncode, done.stdout) == (1, "")
    assert install_command(extra) in done.stderr
    assert done.stderr.startswith("error: this install has partc-runner alone")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("extra", "command", "hinted"),
    [("serve", "simulate", "client"), ("client", "serve", "serve"), ("client", "compile", "compile")],
)
def test_a_package_that_is_missing_is_named_with_the_extra_of_the_command(
    compiled: Path, extra: str, command: str, hinted: str
) -> None:
    words = ["model.yaml", "--target", "devices.yaml"] if command == "compile" else ["build"]
    done = partc(extra, command, *words, cwd=compiled)
    assert done.returncode == 1
    assert done.stderr.startswith("error: this needs the package ")
    assert install_command(hinted) in done.stderr


def test_every_command_has_an_extra_that_exists() -> None:
    assert set(OF_COMMAND) < set(COMMANDS)
    assert {*OF_COMMAND.values(), COMPILE} <= requirements().keys()


def test_the_compiler_brings_what_a_client_needs() -> None:
    assert modules_of("client") <= modules_of(COMPILE)


def test_modules_and_extras() -> None:
    assert extra_of("rich.table", "fleet") == "fleet"
    assert extra_of("yaml", "watch") == "client"
    assert extra_of("PIL", "run") == "vision"
    assert extra_of("tvm", "run") == "tvm"
    assert extra_of("nothing_of_ours", "run") is None
    assert exit_code(ModuleNotFoundError("no", name="nothing_of_ours")) == 70


def test_the_command_follows_from_how_partc_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install_command("serve", "ort") == f"pip install -e '{ROOT}[serve,ort]'"
    found = requirements()
    monkeypatch.setattr(extras, "_checkout", lambda: None)
    monkeypatch.setattr(extras, "requirements", lambda: found)
    wheel = tmp_path / f"partc-{__version__}-py3-none-any.whl"
    monkeypatch.setattr(extras, "_source", lambda: wheel)
    assert install_command("serve", upgrade=True) == f"pip install --upgrade '{wheel}[serve]'"
    monkeypatch.setattr(extras, "_source", lambda: None)
    assert install_command("ort", "tokenizer") == "pip install 'onnxruntime>=1.20' 'tokenizers>=0.20'"


def test_a_released_wheel_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip would take one that is called otherwise for a wheel of other systems."""
    assert extras.wheel_name() == f"partc-{__version__}-py3-none-any.whl"
    wheel = tmp_path / f"partc-{__version__}-py3-none-manylinux_2_28_x86_64.whl"
    monkeypatch.setattr(extras, "_checkout", lambda: None)
    monkeypatch.setattr(extras, "_source", lambda: wheel)
    assert extras.wheel_name() == wheel.name
    assert extras.wheel_command("kube") == f"cp {wheel} kube/{wheel.name}"


def test_no_text_names_an_install_that_does_not_exist() -> None:
    """partc is on no package index."""
    wrong = re.compile(r"pip install (?:--?\S+ )*['\"]?partc\b(?!-)")
    folders = ("partc", "passes", "targets", "native", "docs", "examples", "tests/bench")
    files = [ROOT / "README.md", *(file for folder in folders for file in (ROOT / folder).rglob("*"))]
    texts = [file for file in files if file.suffix in {".py", ".md", ".cpp", ".hpp", ".yaml", ".js"}]
    own = ROOT / "partc" / "extras.py"
    assert [file.name for file in texts if file != own and wrong.search(file.read_text())] == []


def test_extras_of_pyproject_are_those_that_are_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirements() == {name: tuple(items) for name, items in project["optional-dependencies"].items()}
