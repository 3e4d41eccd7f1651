"""Phones over adb; the one here is a script that keeps a folder, as no phone is at hand."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.cluster.demo import free_ports
from partc.deploy.adb import AdbSettings, Phone, adb_commands
from partc.errors import BundleError, ConfigError
from partc.format.names import PLACEMENT_FILE, RUNNER_FILE
from partc.runtime.client.client import Client
from tests.runtime.bundles import language_model, reseal

# As adbd does, `push` gives all users the rights of the owner.
FAKE = """\
#!/bin/sh
echo "$@" >> "{log}"
[ "$1" = -s ] && shift 2
case "$1" in
  shell) sh -c "$2" ;;
  push) cp -r "$2" "$3" && chmod -R go=u "$3$(basename "$2")" ;;
  forward|reverse) ;;
  *) echo "adb: unknown command $1" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Three devices without addresses; the native runner of each is the one in Python by another name."""
    made = language_model("null").write(tmp_path / "build")
    for name in "abc":
        program = made / "devices" / name / RUNNER_FILE
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom partc.runtime.__main__ import main\nsys.exit(main())\n"
        )
    reseal_all(made, dict.fromkeys("abc"))
    return made


def reseal_all(build: Path, addresses: dict[str, str | None]) -> None:
    for name in "abc":
        reseal(build / "devices" / name / PLACEMENT_FILE, addresses=addresses)


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake in front of PATH; its log."""
    log, program = tmp_path / "adb.log", tmp_path / "bin" / "adb"
    program.parent.mkdir()
    program.write_text(FAKE.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return log


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Path]:
    """A phone's folder; what runs in it ends with the test."""
    folder = tmp_path / "phone" / "partc"
    yield folder
    for file in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


@pytest.mark.in_turns(2)
def test_a_ring_of_phones(build: Path, adb: Path, phone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = {name: f"127.0.0.1:{port}" for name, port in zip("abc", free_ports(3), strict=True)}
    peers = [word for name, address in at.items() for word in ("--peer", f"{name}={address}")]
    options = ["--to", "adb", "--folder", str(phone), *peers]
    assert run(["deploy", str(build), *options, "--phone", "a", "--phone", "b=XYZ", "--phone", "c"]) == 0
    assert [shlex.split(line) for line in capsys.readouterr().out.splitlines()] == [
        ["adb", *words] for one in (Phone("a"), Phone("b", "XYZ"), Phone("c"))
        for words in adb_commands(build, one, AdbSettings(str(phone), at))
    ]  # fmt: skip
    assert (phone / "b/keys").stat().st_mode & 0o77 == 0
    with Client.connect(build, at["a"]) as client:
        assert client.generate([1, 2, 3], max_new_tokens=2).tokens
    first = (phone / "b.pid").read_text()
    (phone / "b/old").touch()  # a file that this build does not have
    assert run(["deploy", str(build), *options, "--phone", "b"]) == 0
    assert (phone / "b.pid").read_text() != first
    assert (
        not Path(f"/proc/{first.strip()}/cmdline").exists()
        or not Path(f"/proc/{first.strip()}/cmdline").read_text()
    )
    with Client.connect(build, at["a"]) as client:
        assert client.generate([1, 2, 3], max_new_tokens=2).tokens


def test_a_runner_that_ends_at_once_says_why(
    build: Path, adb: Path, phone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "devices" / "a" / RUNNER_FILE).write_text("#!/bin/sh\necho error: no room >&2\nexit 1\n")
    assert run(["deploy", str(build), "--to", "adb", "--folder", str(phone), "--phone", "a"]) == 1
    assert "adb shell failed: error: no room" in capsys.readouterr().err


def test_ports_through_the_cable(build: Path) -> None:
    reseal_all(build, {"a": "127.0.0.1:6001", "b": "127.0.0.1:6002", "c": "192.0.2.7:6003"})
    settings = AdbSettings("/p", forward=True)
    commands = adb_commands(build, Phone("b", "XYZ"), settings)
    assert commands[2:4] == [
        ["-s", "XYZ", "forward", "tcp:6002", "tcp:6002"],
        ["-s", "XYZ", "reverse", "tcp:6001", "tcp:6001"],
    ]
    assert "--listen 127.0.0.1:6002 " in commands[-1][-1]
    assert "--listen 0.0.0.0:6003 " in adb_commands(build, Phone("c"), settings)[-1][-1]


def test_names_and_devices_without_a_runner_are_refused(build: Path) -> None:
    with pytest.raises(ConfigError, match=r"'laptop\.local:5555' is a name"):
        adb_commands(build, Phone("a"), AdbSettings(peers={"b": "laptop.local:5555"}))
    adb_commands(build, Phone("a"), AdbSettings(peers={"b": "[2001:db8::1]:5555"}))
    (build / "devices" / "a" / RUNNER_FILE).unlink()
    with pytest.raises(BundleError, match="a has no native runner"):
        adb_commands(build, Phone("a"), AdbSettings())


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--to", "adb"], 1, "no device of this build is a phone"),
        (["--to", "adb", "--phone", "x"], 2, "no device ['x']"),
        (["--to", "adb", "-o", "files"], 2, "writes no files"),
        (["--to", "adb", "--phone", "a", "--peer", "b=here"], 2, "no HOST:PORT"),
        (["--to", "systemd", "--forward"], 2, "go with --to adb"),
    ],
)
def test_options_that_do_not_fit(
    build: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["deploy", str(build), *options]) == code
    assert said in capsys.readouterr().err


def test_without_adb(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(["deploy", str(build), "--to", "adb", "--phone", "a"]) == 1
    assert "platform tools" in capsys.readouterr().err
