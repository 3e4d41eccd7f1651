"""`partc serve` in front of a ring that was deployed: its units and manifests, its files, and the programs it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from partc.cli.main import run
from partc.deploy.endpoint import read_endpoint
from partc.deploy.runners import read_runners
from partc.extras import wheel_name
from partc.format.names import PLACEMENT_FILE
from partc.runtime.client.launch import launch_local
from tests.runtime.bundles import graph_model, language_model, reseal
from tests.serve.server import make_build, serving

SSH = '#!/bin/sh\n[ "$1" = root@a ] || exit 255\nshift\nexec sh -c "$*"\n'


def deployed(build: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run(["deploy", str(build), "--json", *options]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.fixture
def build(tmp_path: Path) -> Path:
    made = make_build(tmp_path)
    (made / "plan.json").write_text("{}")
    return made


def test_a_unit_connects_to_the_source_and_asks_for_keys(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        addresses = {"a": "192.0.2.7:6000", "b": None, "c": None}
        reseal(build / "devices" / name / PLACEMENT_FILE, addresses=addresses)
    unit = deployed(build, capsys, "--to", "systemd")["files"]["partc-serve.service"]
    (command,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert command == (
        "ExecStart=/opt/partc/bin/partc serve /var/lib/partc/endpoint --connect 127.0.0.1:6000 "
        "--host 0.0.0.0 --port 8000 --api-key-file /var/lib/partc/endpoint/api-keys"
    )
    assert "partc-runner@a.service" in unit


def test_a_deployment_a_service_and_two_secrets(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = deployed(build, capsys, "--to", "kubernetes", "--image", "r.example/partc:1")
    pod = yaml.safe_load(told["files"]["endpoint.yaml"])["spec"]["template"]
    service = yaml.safe_load(told["files"]["service.yaml"])["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]
    secrets = {one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one}
    made = {line.split()[6] for line in told["commands"] if "create secret generic" in line}
    assert secrets == {"partc-client", "partc-api-keys"}
    assert secrets <= made
    assert pod["spec"]["nodeSelector"] == {"partc.dev/device": "a"}


def test_a_containerfile_installs_the_wheel_that_a_command_makes(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = deployed(build, capsys, "--to", "kubernetes", "--image", "r.example/partc:1")
    text = told["files"]["Containerfile"]
    assert f'"/tmp/{wheel_name()}[serve]"' in text
    wheel, image, push = told["commands"][:3]
    assert wheel.startswith("pip wheel --no-deps --wheel-dir . ")
    assert image == "podman build -t r.example/partc:1 -f Containerfile ."
    assert push == "podman push r.example/partc:1"


def test_commands_put_the_programs_where_the_units_look(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "devices" / "b" / "partc-runner").touch()
    commands = deployed(build, capsys, "--to", "systemd")["commands"]
    installs = {
        line.split()[1]: line.split("/tmp/")[1].rstrip("'") for line in commands if "pip install" in line
    }
    assert installs == {"root@a": f'{wheel_name()}[serve]"', "root@c": f'{wheel_name()}"'}
    (build / "devices" / "a" / "partc-runner").touch()
    (build / "devices" / "c" / "partc-runner").touch()
    commands = deployed(build, capsys, "--to", "systemd", "--runner", "/srv/p/bin/partc-runner")["commands"]
    (install,) = (line for line in commands if "pip install" in line)
    assert "python3 -m venv /srv/p && /srv/p/bin/pip install" in install
    assert install.startswith("ssh root@a "), "the source serves; native runners need nothing"


def test_runners_of_an_engine_get_its_extra(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = language_model("ort").write(tmp_path / "build")
    told = deployed(build, capsys, "--to", "systemd")["commands"]
    assert sum("[ort]" in line for line in told) == 2
    assert sum("[ort,serve]" in line for line in told) == 1
    manifest = deployed(build, capsys, "--to", "kubernetes", "--image", "i")["files"]["Containerfile"]
    assert "[serve,ort]" in manifest


def test_a_model_that_takes_no_text_has_no_endpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = graph_model().write(tmp_path / "build")
    assert read_endpoint(build, read_runners(build)) is None
    assert "partc-serve.service" not in deployed(build, capsys, "--to", "systemd")["files"]
    files = deployed(build, capsys, "--to", "kubernetes", "--image", "i")["files"]
    assert not {"endpoint.yaml", "service.yaml"} & files.keys()


@pytest.mark.serve
def test_what_is_copied_is_enough_to_answer(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (build / "plan.json").unlink()
    there, fakes = tmp_path / "there", tmp_path / "fakes"
    fakes.mkdir()
    (fakes / "ssh").write_text(SSH)
    (fakes / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    commands = deployed(build, capsys, "--to", "systemd", "--folder", str(there))["commands"]
    copies = [line for line in commands if "/endpoint" in line and line.split()[0] in ("ssh", "tar")][:2]
    for line in copies:
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, timeout=60)
    folder = there / "endpoint"
    assert not list(folder.rglob("secret.key")), "keys of devices stay with the devices"
    shutil.copy(tmp_path / "template.jinja", there)
    with launch_local(build) as ring, serving(folder, "--connect", ring.source) as server:
        assert server.complete(max_tokens=2)[0] == 200
