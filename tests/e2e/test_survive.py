"""Builds that survive a loss, the whole way: compiled, run as processes, and run as the ring would be afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.format.contingencies import contingency_file, load_contingencies
from partc.format.files import verify_files
from partc.format.names import PLACEMENT_FILE, device_folders
from partc.format.role import load_role
from tests.e2e.kills import drawn

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(2)]

MODEL = """\
model:
  seed: 4
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 48, vocab_size: 120, max_position_embeddings: 64, tie_word_embeddings: true}
max_sequence: 48
max_requests: 2
"""
DEVICES = """\
source: phone
objective: throughput
survive: one
place: {{phone: layers 0-1, board: layers 2-3, old: layers 4-5}}
devices:
  phone: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 240 kB{options}}}
  board: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 240 kB{options}}}
  old: {{target: {target}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 240 kB{options}}}
  spare: {{target: {target}, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 240 kB{options}}}
links:
  default: {{bandwidth: 1 Gbit/s, latency: 1 ms}}
"""
TARGETS = ["ort", pytest.param("tvm", marks=pytest.mark.tvm)]
PROMPT = ",".join(map(str, range(3, 14)))


@pytest.fixture(scope="module", params=TARGETS)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("survive"), request.param, "one")


def compiled(folder: Path, target: str, survive: str, overlap: int = 0) -> Path:
    options = ", options: {chunks: [16]}" if target == "tvm" else ""
    text = DEVICES.format(target=target, options=options)
    text = text.replace("survive: one", f"survive: {survive}\noverlap: {overlap}")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(text)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / survive)]) == 0
    return folder / survive


def tokens(build: Path, capsys: pytest.CaptureFixture[str]) -> list[int]:
    """Drawn ones: a tiny model's likeliest token is always the same, whatever its layers compute."""
    capsys.readouterr()
    options = ["--tokens", "24", "--temperature", "1", "--seed", "5", "--json"]
    assert run(["run", str(build), "--token-ids", PROMPT, *options]) == 0
    (request,) = json.loads(capsys.readouterr().out)["requests"]
    (sequence,) = request["tokens"]
    return list(sequence)


def after_the_loss(build: Path, lost: str, folder: Path) -> Path:
    """A copy of the build whose devices have the placement for a loss in force, and without the lost one."""
    shutil.copytree(build, folder)
    shutil.rmtree(folder / "devices" / lost)
    text = (build / "devices" / "phone" / contingency_file(lost)).read_text()
    for device in device_folders(folder):
        (device / PLACEMENT_FILE).write_text(text)
    return folder


@pytest.mark.in_turns(6)
def test_each_loss_leaves_the_same_tokens(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = tokens(build, capsys)
    assert len(set(expected)) > 4, "a model that says one thing only proves nothing"
    for lost in ("board", "old"):
        assert tokens(after_the_loss(build, lost, tmp_path / lost), capsys) == expected


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("lost", ["board", "old"])
def test_a_killed_device_takes_no_token_with_it(build: Path, lost: str) -> None:
    """Nobody starts it again: the others go over to the placement without it."""

    assert drawn(build, lost) == drawn(build)


@pytest.mark.in_turns(6)
def test_tokens_are_those_of_a_build_that_survives_nothing(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = load_role(build / "devices" / "phone").target
    assert tokens(compiled(tmp_path, target, "none"), capsys) == tokens(build, capsys)


def test_verify(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["verify", str(build), "--tokens", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"] and report["identical_tokens"]


def test_simulate(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(build), "--json"]) == 0
    assert "board" in capsys.readouterr().out


def test_the_folders(build: Path) -> None:
    """What survivors run lies on their disks; memory is that of the plan; files are held against their digests."""
    folders = {path.name: path for path in device_folders(build)}
    roles = {name: load_role(path) for name, path in folders.items()}
    for name, path in folders.items():
        verify_files(path, roles[name].files)
        assert roles[name].build.survives == ("board", "old")
    mirrors = roles["phone"].placement.mirrors
    assert mirrors, "there is time and memory enough"
    for piece, holder in mirrors.items():
        assert piece in roles[holder].submodules and piece not in roles[holder].running
        assert roles[holder].build.memory.mirror_bytes > 0
    found = load_contingencies(roles["phone"], folders["phone"])
    assert set(found) == {"board", "old"}
    assert all(lost not in placement.ring for lost, placement in found.items())
    assert all(set(placement.addresses) == set(roles) for placement in found.values())
    assert load_contingencies(roles["board"], folders["board"]) == {}
    covers = {item.name: item.covers for role in roles.values() for item in role.submodules.values()}
    assert len(covers) > 3 and all(covers.values())
    kept = {name: len(role.submodules) - len(role.running) for name, role in roles.items()}
    assert sum(kept.values()) > 1
    for name, role in roles.items():
        assert (role.build.memory.weights_bytes > 0) == bool(role.running), name


def test_an_identical_compile(build: Path, tmp_path: Path) -> None:
    target = load_role(build / "devices" / "phone").target
    again = compiled(tmp_path, target, "one")
    for path in sorted(build.rglob("*")):
        inside = path.relative_to(build)
        if path.is_file() and not {"keys", "runs"} & set(inside.parts):
            assert path.read_bytes() == (again / inside).read_bytes(), inside


@pytest.mark.in_turns(4)
def test_what_may_be_moved_lies_on_both_disks(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice as many pieces compute the same."""
    target = load_role(build / "devices" / "phone").target
    finer = compiled(tmp_path, target, "none", overlap=2)
    assert tokens(finer, capsys) == tokens(build, capsys)
    roles = [load_role(path) for path in device_folders(finer)]
    holders = {
        name: {role.device for role in roles if name in role.submodules}
        for role in roles
        for name in role.submodules
    }
    shared = [devices for devices in holders.values() if len(devices) == 2]
    assert len(holders) > 4 and len(shared) > 1
    assert all(load_role(path).build.survives == () for path in device_folders(finer))
