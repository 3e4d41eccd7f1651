"""Devices that share stages, one of which is lost for good: those that are left form stages anew."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from partc.balance.homing import TEXT, Homing
from partc.cli.balance import balanced
from partc.cli.main import run
from partc.format.contingencies import load_contingencies
from partc.format.names import device_folders
from partc.format.role import load_role
from partc.planner.groups.members import disk_use
from partc.planner.model.plan_file import PLAN_FILE
from partc.planner.model.problem_json import read_problem
from partc.planner.simulate.case import read_case
from partc.runtime.client.launch import launch_local
from tests.e2e.kills import drawn, drawn_by

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(8, whole=True)]

MODEL = """\
model:
  seed: 4
  config: {{model_type: llama, hidden_size: 32, num_hidden_layers: {layers}, num_attention_heads: 4,
           num_key_value_heads: 2, intermediate_size: {inner}, vocab_size: 120, max_position_embeddings: 64}}
max_sequence: 48
max_requests: 2
{options}
"""
DEVICES = """\
source: phone
survive: one
devices:
  phone: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: {memory}}}
  board: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: {memory}}}
  old: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: {memory}}}
links:
  default: {{bandwidth: 1 Gbit/s, latency: 0.1 ms}}
"""


def compiled(
    folder: Path,
    strategy: str,
    target: str,
    *,
    memory: str = "40 MB",
    layers: int = 3,
    inner: int = 64,
    options: str = "",
) -> Path:
    (folder / "model.yaml").write_text(MODEL.format(layers=layers, inner=inner, options=options))
    (folder / "devices.yaml").write_text(DEVICES.format(target=target, memory=memory))
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml"), "--strategy", strategy]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


def rings_after(build: Path) -> dict[str, tuple[str, ...]]:
    """Lost device → those that go on, as the source has it."""
    folder = build / "devices" / "phone"
    return {lost: placement.ring for lost, placement in load_contingencies(load_role(folder), folder).items()}


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    ("strategy", "target", "options"),
    [
        ("galaxy", "ort", ""),
        pytest.param("megatron", "tvm", "quantize: int4", marks=pytest.mark.tvm),
        pytest.param("galaxy", "tvm", "dtype: float16", marks=pytest.mark.tvm),
    ],
)
def test_a_killed_member_takes_no_token_with_it(
    strategy: str, target: str, options: str, tmp_path: Path
) -> None:
    """What was told stays, and what follows is as it would have been: no two tokens are about as likely here."""
    build = compiled(tmp_path, strategy, target, options=options)
    expected = drawn(build)
    assert len(set(expected[0])) > 4, "a model that says one thing only proves nothing"
    for lost, at in (("board", 3), ("old", 12)):
        assert drawn(build, lost, at=at) == expected


def test_those_that_are_left_share_stages_again(tmp_path: Path) -> None:
    """One device alone has no memory for the MLP beside its share."""
    build = compiled(tmp_path, "galaxy", "ort", memory="640 kB", layers=1, inner=512)
    assert rings_after(build) == {"board": ("phone", "old"), "old": ("phone", "board")}
    losses = json.loads((build / PLAN_FILE).read_text())["survival"]["losses"]
    for loss in losses:
        assert any(len(stage["devices"]) == 2 for stage in loss["phases"]["decode"])
    expected = drawn(build)
    assert drawn(build, "board") == expected


def test_a_plan_that_serves_two_losses_lies_there_once(tmp_path: Path) -> None:
    build = compiled(tmp_path, "megatron", "ort")
    assert rings_after(build) == {"board": ("phone",), "old": ("phone",)}
    first, second = json.loads((build / PLAN_FILE).read_text())["survival"]["losses"]
    assert first["bytes"] and not second["bytes"]
    assert first["phases"] == second["phases"]


def test_storage_for_the_plan_of_one_loss_is_enough_for_both(tmp_path: Path) -> None:
    build = compiled(tmp_path, "megatron", "ort")
    plan = json.loads((build / PLAN_FILE).read_text())
    own = dict(disk_use(read_problem(plan["problem"]), read_case(plan).phases))["phone"]
    copies = plan["survival"]["losses"][0]["bytes"]["phone"]
    file = tmp_path / "devices.yaml"
    devices = file.read_text().replace(
        "memory: 40 MB}", f"memory: 40 MB, storage: {own + copies + 1:.0f} B}}", 1
    )
    file.write_text(devices)
    files = [str(tmp_path / "model.yaml"), "--target", str(file), "--strategy", "megatron"]
    assert run(["plan", *files]) == 0, "the second loss needs nothing more"


def test_a_spare_that_takes_part_after_a_loss_alone_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(MODEL.format(layers=3, inner=64, options=""))
    devices = (
        DEVICES.format(target="ort", memory="40 MB").replace("GFLOP/s", "MFLOP/s").replace("8 GB/s", "8 MB/s")
    )
    slow = devices.replace("old: {target: ort, flops: 10 MFLOP/s", "old: {target: ort, flops: 1000 FLOP/s")
    (tmp_path / "devices.yaml").write_text(
        slow.replace("0.1 ms", "1 us").replace("memory: 40 MB", "memory: 270 kB", 1)
    )
    files = [str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml")]
    build = tmp_path / "build"
    assert run(["compile", *files, "--strategy", "optimal-groups", "-o", str(build)]) == 0
    role = load_role(build / "devices" / "phone")
    assert role.ring == ("phone", "board")
    assert any(len(stage.devices) == 2 for stage in role.placement.stages["decode"])
    assert {path.name for path in device_folders(build)} == {"phone", "board", "old"}
    assert run(["simulate", str(build)]) == 0


def test_the_folders_of_survivors(tmp_path: Path) -> None:
    build = compiled(tmp_path, "galaxy", "ort", memory="330 kB")
    roles = {path.name: load_role(path) for path in device_folders(build)}
    assert all(role.build.survives == ("board", "old") for role in roles.values())
    kept = {name: len(role.submodules) - len(role.running) for name, role in roles.items()}
    assert all(count > 0 for count in kept.values())


def test_a_loss_that_nobody_has_memory_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(tmp_path, "galaxy", "ort", memory="190 kB")
    said = capsys.readouterr().out + capsys.readouterr().err
    assert "if board is lost, nothing helps" in " ".join(said.split())


def test_too_little_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.yaml").write_text(MODEL.format(layers=3, inner=64, options=""))
    devices = DEVICES.format(target="ort", memory="40 MB").replace(
        "memory: 40 MB}", "memory: 40 MB, storage: 100 kB}"
    )
    (tmp_path / "devices.yaml").write_text(devices)
    files = [str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml"), "--strategy", "galaxy"]
    assert run(["plan", *files]) == 1
    assert "the loss of board cannot be survived: the other disks have no room" in capsys.readouterr().err


def test_a_member_that_is_back_has_its_share_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner is started anew; the ring that goes on without it goes back to the plan, and no token changes."""
    monkeypatch.setattr(Homing.__init__, "__defaults__", (0.2,))
    build = compiled(tmp_path, "megatron", "ort")
    expected = drawn(build)
    with launch_local(build) as ring, ring.client() as client, balanced(client, build):
        os.kill(ring.pids["board"], signal.SIGKILL)
        while f"moved {TEXT}" not in (said := capsys.readouterr().err):
            assert "not moved" not in said
            assert drawn_by(client) == expected
        assert drawn_by(client) == expected
