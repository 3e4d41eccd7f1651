"""Devices over ssh; ssh, scp and systemd are scripts here, which keep each host as a folder and start real runners."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.cluster.demo import free_ports
from partc.format.names import PLACEMENT_FILE, RUNNER_FILE
from partc.runtime.client.client import Client
from tests.runtime.bundles import language_model, reseal

# A host is a folder: absolute paths in commands are those below it. A host without a folder does not answer.
SSH = """\
#!/bin/sh
[ "$1 $2 $3 $4" = "-o BatchMode=yes -o ConnectTimeout=10" ] || {{ echo "options: $*" >&2; exit 2; }}
shift 4
echo "ssh $1" >> {log}
cd {hosts}/$1 2>/dev/null || {{ echo "ssh: connect to host $1: No route to host" >&2; exit 255; }}
command=$(printf %s "$2" | sed "s#/var/lib/partc#$PWD/var#g; s#/etc/systemd/system#$PWD/units#g")
PATH={fakes}:$PATH HOST=$PWD sh -c "$command"
"""
SCP = """\
#!/bin/sh
shift 5
for last; do :; done
host=${{last%%:*}}; path=$(printf %s "${{last#*:}}" | sed "s#/var/lib/partc#{hosts}/$host/var#")
while [ $# -gt 1 ]; do cp -rp "$1" "$path" || exit 1; shift; done
"""
SYSTEMCTL = """\
#!/bin/sh
echo "systemctl $*" >> {log}
eval unit=\\${{$#}}; name=${{unit#partc-runner@}}; pid=$HOST/$name.pid
runs() {{ [ -f $pid ] && grep -q . /proc/$(cat $pid 2>/dev/null)/cmdline 2>/dev/null; }}
stop() {{ if runs; then kill $(cat $pid); while runs; do sleep 0.05; done; fi; rm -f $pid; }}
case "$1" in
  stop) stop; true ;;
  is-active) runs ;;
  restart)
    stop
    drop_in="$HOST/units/$unit.service.d/device.conf"
    PARTC_PORT=$(sed -n 's/^Environment=PARTC_PORT=//p' "$drop_in"); export PARTC_PORT
    command=$(cat "$HOST/units/partc-runner@.service" "$drop_in" | sed -n 's/^ExecStart=//p' | tail -1 |
      sed "s#%i#$name#g; s#/var/lib/partc#$HOST/var#g; s#0.0.0.0#127.0.0.1#")
    eval "exec $command" > $HOST/$name.log 2>&1 < /dev/null & echo $! > $pid ;;
esac
"""
JOURNAL = '#!/bin/sh\nname=${2#partc-runner@}\ncat "$HOST/$name.log"\n'


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Three devices at ports of this machine; the native runner of each is the one in Python by another name."""
    made = language_model("null").write(tmp_path / "build")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip("abc", free_ports(3), strict=True)}
    for name in "abc":
        folder = made / "devices" / name
        (folder / RUNNER_FILE).write_text(
            f"#!{sys.executable}\nimport sys\nfrom partc.runtime.__main__ import main\nsys.exit(main())\n"
        )
        (folder / RUNNER_FILE).chmod(0o755)
        reseal(folder / PLACEMENT_FILE, addresses=addresses)
    return made


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-ins in front of PATH, and a folder for each host; what runs there ends with the test."""
    folder, fakes, local = tmp_path / "hosts", tmp_path / "fakes", tmp_path / "bin"
    given = {"hosts": folder, "fakes": fakes, "log": tmp_path / "log"}
    scripts = {
        local / "ssh": SSH.format(**given),
        local / "scp": SCP.format(**given),
        fakes / "systemctl": SYSTEMCTL.format(**given),
        fakes / "journalctl": JOURNAL,
        **{fakes / name: "#!/bin/sh\n" for name in ("useradd", "chown")},
    }
    for path, text in scripts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for host in ("root@a", "root@b", "ops@192.0.2.7"):
        for name in ("var", "units"):
            (folder / host / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{local}{os.pathsep}{os.environ['PATH']}")
    yield folder
    for file in folder.glob("*/*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


APPLY = ["--to", "systemd", "--apply", "--host", "c=ops@192.0.2.7"]


def address(build: Path) -> str:
    found = json.loads((build / "devices/a" / PLACEMENT_FILE).read_text())["addresses"]["a"]
    return str(found)


@pytest.mark.in_turns(4)
def test_a_ring_over_ssh(build: Path, hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", str(build), *APPLY]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["ssh", "scp", "scp"] * 3 + ["ssh"] * 3
    assert ["root@a" in line for line in told[-3:]] == [False, False, True], "the source changes last"
    assert (hosts / "root@b/var/b/keys").stat().st_mode & 0o77 == 0
    assert not list(hosts.glob("*/var/.*")), "nothing is left of what was sent"
    with Client.connect(build, address(build)) as client:
        assert client.generate([1, 2, 3], max_new_tokens=2).tokens
    first = (hosts / "root@b/b.pid").read_text()
    (hosts / "root@b/var/b/old").touch()  # a file that this build does not have
    assert run(["deploy", str(build), *APPLY, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["commands"]) == 12
    assert (hosts / "root@b/b.pid").read_text() != first
    assert not (hosts / "root@b/var/b/old").exists()
    with Client.connect(build, address(build)) as client:
        assert client.generate([1, 2, 3], max_new_tokens=2).tokens


def test_a_host_that_does_not_answer_leaves_all_as_it_is(
    build: Path, hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(hosts / "root@a")
    assert run(["deploy", str(build), *APPLY]) == 1
    said = capsys.readouterr().err
    assert "No route to host" in said
    assert "where: a" in said
    assert not (hosts / "root@b/var/b").exists()
    assert not list(hosts.glob("*/*.pid"))


def test_a_runner_that_ends_at_once_says_why_over_ssh(
    build: Path, hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "devices/b" / RUNNER_FILE).write_text("#!/bin/sh\necho error: no room >&2\nexit 1\n")
    assert run(["deploy", str(build), *APPLY]) == 1
    said = capsys.readouterr().err
    assert "ssh failed: error: no room" in said
    assert "where: b" in said


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--to", "systemd", "--apply", "--host", "x=h"], 1, "no device 'x'"),
        (["--to", "systemd", "--apply", "--host", "b=-oProxyCommand=id"], 1, "is not a host"),
        (["--to", "systemd", "--apply", "--host", "b"], 1, "is not a host"),
        (["--to", "systemd", "--host", "b=h"], 2, "goes with --to systemd --apply"),
        (["--to", "systemd", "--apply", "-o", "units"], 2, "leave --output out"),
        (["--to", "kubernetes", "--image", "i", "--apply"], 2, "kubectl applies"),
    ],
)
def test_options_of_ssh_that_do_not_fit(
    build: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["deploy", str(build), *options]) == code
    assert said in capsys.readouterr().err


def test_without_ssh(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(["deploy", str(build), "--to", "systemd", "--apply"]) == 1
    assert "there is no ssh" in capsys.readouterr().err
