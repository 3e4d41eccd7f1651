"""The choice between the native runner in a device's folder and the one of this package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from partc import __version__
from partc.errors import RunError
from partc.format.names import RUNNER_FILE
from partc.runtime.client.launch import launch_local
from partc.runtime.client.runners import PYTHON_RUNNER, choose_runner
from tests.runtime.bundles import language_model


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


def put_program(folder: Path, text: str) -> None:
    (folder / RUNNER_FILE).write_text(text)
    (folder / RUNNER_FILE).chmod(0o755)


def stand_in(trace: Path) -> str:
    """A program that is started as a native runner is, notes with what, and then is the one in Python."""
    return f'#!/bin/sh\necho "$@" >> "{trace}"\nexec "{sys.executable}" -P -m partc.runtime "$@"\n'


def at_once_ready(device: str, then: str) -> str:
    """A program that stands for a native runner, and is ready before it has read anything."""
    told = f'{{"device": "{device}", "listening": "127.0.0.1:9"}}\\n{{"ready": true}}\\n'
    version = f'if [ "$1" = --version ]; then echo {__version__}; exit; fi'
    return f"#!/bin/sh\n{version}\nprintf '{told}'\n{then}\n"


def test_a_ring_starts_the_program_in_a_folder(build: Path, tmp_path: Path) -> None:
    put_program(build / "devices" / "b", stand_in(tmp_path / "trace"))
    with launch_local(build) as ring, ring.client() as client:
        assert ring.runners == {"a": "python", "b": "native", "c": "python"}
        assert client.generate([1, 2, 3], max_new_tokens=2).tokens
    asked, started = (tmp_path / "trace").read_text().splitlines()
    assert asked == "--version"
    assert started.startswith(f"--stdio --bundle {build / 'devices' / 'b'} --listen 127.0.0.1:0 ")


def test_a_runner_may_be_ready_as_soon_as_it_listens(build: Path) -> None:
    """A device alone needs no others: it tells both in one breath."""
    for name in "abc":
        put_program(build / "devices" / name, at_once_ready(name, then="cat > /dev/null"))
    with launch_local(build, ready_s=20.0) as ring:
        assert ring.addresses == dict.fromkeys("abc", "127.0.0.1:9")


def test_a_runner_that_closes_its_output_and_stays_is_waited_for_no_longer(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partc.runtime.shell.process._LINGER_S", 0.1)
    put_program(build / "devices" / "b", at_once_ready("b", then="exec sleep 600 > /dev/null"))
    with pytest.raises(RunError, match="the runner of b closed its standard output and did not end"):
        launch_local(build, ready_s=20.0)


def test_measuring_is_for_python(build: Path, tmp_path: Path) -> None:
    put_program(build / "devices" / "b", stand_in(tmp_path / "trace"))
    with launch_local(build, measure=True, insecure=True) as ring:
        assert set(ring.runners.values()) == {"python"}
    assert not (tmp_path / "trace").exists()


def test_a_wish_decides(build: Path) -> None:
    folder = build / "devices" / "a"
    put_program(folder, "#!/bin/sh\n")
    assert choose_runner(folder, None) == choose_runner(folder, "native") == (str(folder / RUNNER_FILE),)
    assert choose_runner(folder, "python") == PYTHON_RUNNER


@pytest.mark.parametrize(
    "program", [b"\x7fELF of another processor", b"#!/no/such/interpreter\n", b"#!/bin/sh\nexit 127\n", None]
)
def test_a_program_that_cannot_run_here_is_left_alone(build: Path, program: bytes | None) -> None:
    folder = build / "devices" / "a"
    if program is not None:
        put_program(folder, program.decode("latin-1"))
    assert choose_runner(folder, None) == PYTHON_RUNNER
    with pytest.raises(RunError, match="a has no native runner for this machine"):
        choose_runner(folder, "native")
