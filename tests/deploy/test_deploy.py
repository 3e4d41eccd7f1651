"""Units and manifests of a build, and what systemd's and Kubernetes' own tools say of them."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from partc.cli.main import run
from partc.deploy.kubernetes import check_names, kubernetes_files
from partc.deploy.runners import Runner
from partc.errors import ConfigError
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from tests.runtime.bundles import language_model, reseal

MEMORY = {
    "budget_bytes": 900 << 20,
    "weights_bytes": 100,
    "state_bytes": 20,
    "peak_bytes": 3,
    "mirror_bytes": 0,
}
OVERHEAD = 60 << 20


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three devices; b has an address, c a GPU and no known budget."""
    made = language_model("null").write(tmp_path_factory.mktemp("deploy") / "build")
    for name in "abc":
        folder = made / "devices" / name
        reseal(folder / PLACEMENT_FILE, addresses={"a": None, "b": "192.0.2.7:6000", "c": None})
        reseal(folder / BUILD_FILE, memory={**MEMORY, **({"budget_bytes": None} if name == "c" else {})})
    engine = json.loads((made / "devices" / "c" / BUILD_FILE).read_text())["engine"]
    reseal(made / "devices" / "c" / BUILD_FILE, engine={**engine, "provider": "cuda"})
    return made


def deploy(build: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run(["deploy", str(build), "--json", *options]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def systemd(build: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    files: dict[str, str] = deploy(build, capsys, "--to", "systemd")["files"]
    return files


def kubernetes(build: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    files: dict[str, str] = deploy(build, capsys, "--to", "kubernetes", "--image", "r.example/partc:1")[
        "files"
    ]
    return files


def test_a_drop_in_has_the_address_and_the_memory(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = systemd(build, capsys)
    assert sorted(files) == [
        "partc-runner@.service",
        *(f"partc-runner@{name}.service.d/device.conf" for name in "abc"),
        "partc-serve.service",
    ]
    assert files["partc-runner@b.service.d/device.conf"] == (
        "[Service]\n"
        "Environment=PARTC_PORT=6000\n"
        "# What the plan may give this device, and the runner itself.\n"
        f"MemoryMax={(900 << 20) + OVERHEAD}\n"
        "PrivateDevices=yes\n"
    )
    last = files["partc-runner@c.service.d/device.conf"]
    assert f"MemoryMax={123 + OVERHEAD}\n" in last
    assert "PARTC_PORT=5555\n" in last
    assert "PrivateDevices" not in last  # it would hide the GPU


def test_a_manifest_has_the_same(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = {
        name: yaml.safe_load(text)["spec"]["template"]["spec"]
        for name, text in kubernetes(build, capsys).items()
        if name.startswith("runner-")
    }
    assert sorted(pods) == ["runner-a.yaml", "runner-b.yaml", "runner-c.yaml"]
    (container,) = pods["runner-b.yaml"]["containers"]
    assert container["command"] == ["partc-runner", "--bundle", "/bundle", "--listen", "0.0.0.0:6000"]
    assert container["resources"] == {
        "limits": {"memory": str((900 << 20) + OVERHEAD)},
        "requests": {"memory": str(123 + OVERHEAD)},
    }
    assert pods["runner-c.yaml"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pods["runner-b.yaml"]


def test_a_native_runner_in_a_folder_is_started(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = build / "devices" / "b" / "partc-runner"
    runner.touch()
    drop_ins, manifests = systemd(build, capsys), kubernetes(build, capsys)
    runner.unlink()
    last = drop_ins["partc-runner@b.service.d/device.conf"].splitlines()
    at = last.index("ExecStart=")  # empties the list of the template
    command = "/var/lib/partc/b/partc-runner --bundle /var/lib/partc/%i --listen 0.0.0.0:${PARTC_PORT}"
    assert last[at + 1] == f"ExecStart={command}"
    assert "ExecStart" not in drop_ins["partc-runner@a.service.d/device.conf"]
    assert "- /bundle/partc-runner\n" in manifests["runner-b.yaml"]
    assert "- partc-runner\n" in manifests["runner-a.yaml"]


def test_no_key_is_in_any_file(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = [json.loads(path.read_text()) for path in build.rglob("keys/secret.key")]
    assert len(secrets) >= 3
    told = json.dumps([systemd(build, capsys), kubernetes(build, capsys)])
    assert not [value for secret in secrets for value in secret.values() if len(value) > 20 and value in told]


def test_files_and_commands(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", str(build), "--to", "systemd", "-o", str(tmp_path / "units")]) == 0
    told = capsys.readouterr().out
    assert (tmp_path / "units" / "partc-runner@.service").read_text() == systemd(build, capsys)[
        "partc-runner@.service"
    ]
    assert "systemctl enable --now partc-runner@a" in told
    assert "[Service]" not in told


@pytest.mark.parametrize("system", [["systemd"], ["kubernetes", "--image", "partc:1"], ["ray"]])
def test_commands_work_in_the_folder_of_the_files(
    build: Path,
    system: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "my build").symlink_to(build)
    monkeypatch.chdir(tmp_path)
    units = tmp_path / "units"
    for output, folder in (["-o", "units"], units), ([], tmp_path / "elsewhere"):
        assert run(["deploy", "my build", "--to", *system, *output, "--json"]) == 0
        folder.mkdir(exist_ok=True)
        copied = [
            words for line in json.loads(capsys.readouterr().out)["commands"] if (words := shlex.split(line))
        ]
        sources = [words[-2] for words in copied if words[0] in {"scp", "rsync"} and "devices" in words[-2]]
        assert len(sources) == 3
        assert all((folder / source / "build.json").is_file() for source in sources)


@pytest.mark.parametrize(
    "options",
    [
        ["--to", "kubernetes"],
        ["--to", "kubernetes", "--image", ""],
        ["--to", "kubernetes", "--image", "a name"],
        ["--to", "systemd", "--image", "partc:1"],
        ["--to", "systemd", "--folder", "here"],
        ["--to", "ray", "--apply"],
        [],
    ],
)
def test_options_that_do_not_fit(build: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", str(build), *options]) == 2


def test_names_that_kubernetes_does_not_take() -> None:
    check_names([_runner("my_phone")])
    assert (
        "name: runner-my-phone"
        in kubernetes_files([_runner("my_phone")], None, "/d", "i")["runner-my-phone.yaml"]
    )
    for name in ("phone_", "p" * 51):
        with pytest.raises(ConfigError, match=name):
            check_names([_runner(name)])


def _runner(name: str) -> Runner:
    return Runner(name, True, True, "", False, False, "null", "", 5555, 1, 1)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize(
    ("name", "most"), [("partc-runner@b.service", 25), ("partc-serve.service", 20)], ids=["runner", "serve"]
)
def test_systemd_takes_the_units(
    build: Path, name: str, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine with the programs where the printed commands put them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("partc", "partc-runner"):
        (programs / program).symlink_to(sys.executable)
    files = deploy(build, capsys, "--to", "systemd", "--runner", str(programs / "partc-runner"))["files"]
    unit = tmp_path / name
    unit.write_text(files[name.replace("@b.", "@.")])
    assert _analyze("verify", str(unit)) == (0, "")
    code, told = _analyze("security", "--offline=true", f"--threshold={most}", str(unit))
    assert code == 0, told  # an exposure of at most 2.5 of 10
    unit.write_text(re.sub("RestartSec=.*", "RestartSec=soon", unit.read_text()))
    assert "soon" in _analyze("verify", str(unit))[1]


def _analyze(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="no kubernetes-validate (extra `kubernetes`)",
)
def test_kubernetes_takes_the_manifests(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in kubernetes(build, capsys).items():
        (tmp_path / name).write_text(text)
    assert {"endpoint.yaml", "service.yaml"} <= {path.name for path in tmp_path.iterdir()}
    paths = sorted(map(str, tmp_path.glob("*.yaml")))
    command = [sys.executable, "-m", "kubernetes_validate", "--strict"]
    assert subprocess.run([*command, *paths], capture_output=True, timeout=120).returncode == 0
    wrong = tmp_path / "runner-a.yaml"
    wrong.write_text(wrong.read_text().replace("nodeSelector", "nodeSelecter"))
    assert subprocess.run([*command, str(wrong)], capture_output=True, timeout=120).returncode == 1


def test_ray_gets_a_fleet_that_partc_fleet_reads(
    build: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from partc.cluster.posts import posts_of
    from partc.config.fleet import load_fleet

    told = deploy(build, capsys, "--to", "ray", "--folder", "/srv/partc", "-o", str(tmp_path))
    (posts,) = posts_of(load_fleet(tmp_path / "fleet.yaml")).values()
    assert {post.device: post.listen for post in posts.keepers} == {
        "a": "a:5555",
        "b": "192.0.2.7:6000",
        "c": "c:5555",
    }
    assert {post.folder for post in posts.keepers} == {"/srv/partc/a", "/srv/partc/b", "/srv/partc/c"}
    assert posts.door.source == "a:5555"
    started = [command for command in told["commands"] if command.startswith("ssh root@b 'ray")]
    shown = subprocess.run(
        ["sh", "-c", started[0].replace("ssh root@b", "printf %s")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "ray start --address=HEAD:6379 --resources='{\"device_b\": 1}'"


def test_a_loopback_address_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = language_model("null").write(tmp_path / "build")
    for name in "abc":
        addresses = {"a": "127.0.0.1:6000", "b": "192.0.2.7:6000", "c": "[::1]:6001"}
        reseal(build / "devices" / name / PLACEMENT_FILE, addresses=addresses)
    assert run(["deploy", str(build), "--to", "systemd", "--json"]) == 0
    said = capsys.readouterr().err
    assert "no other machine reaches a at 127.0.0.1:6000, c at [::1]:6001: write `address`" in said
