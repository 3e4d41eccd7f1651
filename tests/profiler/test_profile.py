"""`partc profile` from the model to a plan, over real runners on loopback; nothing here depends on how long it took."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.config.devices import load_devices
from partc.config.yamlfile import load_yaml
from partc.errors import BundleError, RunError, UserError
from partc.format.messages import Measured
from partc.ir.graph import ModelInfo, Module
from partc.pipeline.contract import Context, no_progress
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.profiler.bundle import _dims as ring_dims
from partc.profiler.client import Fleet
from partc.profiler.files import devices_yaml, write_files
from partc.profiler.graphs import LONGEST_PROMPT, ProbeSizes
from partc.profiler.measurement import measure, prepare
from partc.profiler.timing import Timed
from partc.profiler.timing import _entry as timing_entry
from partc.profiler.work import Task, Work, load_work
from partc.runtime.client.launch import LocalRing, launch_local
from passes.partition_graph import PartitionGraph
from tests.passes.models import decoder

PROFILED = "find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
DEVICES = """# mine
source: phone
objective: latency
devices:
  phone: {target: "null", profile: cubot_x30, arch: x86_64, memory: 64 MiB}
  board: {target: "null", arch: host, flops: 4 GFLOP/s, memory_bandwidth: 4 GB/s, memory: 64 MiB}
links:
  default: {bandwidth: 100 Mbit/s, latency: 2 ms}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.yaml").write_text(DEVICES)
    yield tmp_path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared bundles of a small decoder on devices of target null."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "given.yaml").write_text(DEVICES)
    prepare(folder / "profile", load_devices(folder / "given.yaml"), profiled(), True, no_progress)
    return folder / "profile"


@pytest.fixture(scope="module")
def fleet(bundle: Path) -> Iterator[Fleet]:
    with launch_local(bundle, measure=True) as ring:
        yield Fleet(bundle, ring.addresses)


def profiled() -> Module:
    module = decoder("llama", layers=4)
    run_passes(module, load_passes(PROFILED))
    return module


def test_the_plan_takes_every_time_from_the_profile(bundle: Path) -> None:
    given = bundle.parent / "given.yaml"
    devices = load_devices(given)
    result = measure(bundle, devices, connect=False, insecure=False, quick=True, progress=no_progress)
    write_files(bundle, load_yaml(given), devices, result)
    found = load_devices(bundle / "devices.yaml")
    module = profiled()
    assert module.submodules is not None
    PartitionGraph(devices=str(bundle / "devices.yaml")).apply(module, Context())
    assert module.plan is not None
    every = 2 * 2 * len(module.submodules)
    times = module.plan.answer.explain["times"]
    assert (times["measured"], times["of"]) == (every, every)
    assert not any("why estimated" in line for line in times["advice"])
    assert (found.source, found.objective) == ("phone", "latency")
    assert found.devices["phone"].profile is None
    assert found.devices["phone"].memory_bytes <= 64 << 20
    assert found.devices["board"].chosen, "`arch: host` stays: its features belong to what was measured"
    assert set(found.links) == {("phone", "board"), ("board", "phone")}
    assert found.default_link is None, "no pair is left for it"
    assert "measured by partc profile" in (bundle / "devices.yaml").read_text()
    times = json.loads((bundle / "times.json").read_text())["devices"]["phone"]
    assert times["machine"]["cores"] >= 1
    assert times["rough"] == ("phone" in result.busy)
    assert all(entry["seconds"] > 0 for entry in times["times"].values())
    distinct = len(load_work(bundle).tasks)
    assert len(times["times"]) == distinct < every / 2


def test_the_profile_of_a_device_by_itself_can_be_read(tmp_path: Path) -> None:
    given, written = tmp_path / "given.yaml", tmp_path / "devices.yaml"
    device = '  phone: {target: "null", profile: cubot_x30, arch: x86_64, memory: 64 MiB}'
    given.write_text(f"source: phone\ndevices:\n{device}\n")
    written.write_text(devices_yaml("measured", load_yaml(given), load_devices(given), [[device]], {}))
    times = {"format": "partc-times/1", "measured": "2026-01-01", "devices": {}}
    (tmp_path / "times.json").write_text(json.dumps(times))
    found = load_devices(written)
    assert (list(found.devices), found.links) == (["phone"], {})


def test_distinct_submodules_are_emitted_once(bundle: Path) -> None:
    work = load_work(bundle)
    role = Fleet(bundle, {}).role("phone")
    assert {task.graph for task in work.tasks} <= set(role.submodules)
    assert work.chain is not None
    assert {work.chain.graph(1), work.chain.graph(work.chain.count)} <= set(role.submodules)
    parts = {name for name in role.submodules if name.startswith("sub_")}
    assert len(parts) < work.submodules
    counted = [index for task in work.tasks if task.phase == "decode" for index in task.submodules]
    assert sorted(counted) == list(range(work.submodules))


def ask(fleet: Fleet, **changes: Any) -> Measured:
    fields: dict[str, Any] = {
        "submodule": "probe_call_1", "dims": {"batch": 1, "sequence": 1}, "position": [0], "length": [1],
        "sample": "", "repeats": 2, "touch_bytes": 1024,
    }  # fmt: skip
    with fleet.probe("board") as probe:
        return probe.measure(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"submodule": "../../etc/passwd"}, "not a sub-module"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": 10**6}, "repeats"),
        ({"touch_bytes": 1 << 40}, "bytes between"),
        ({"dims": {"batch": 10**9, "sequence": 1}}, "batch is"),
        ({"dims": {"batch": 1, "sequence": 10**9}}, "sequence is"),
        ({"dims": {"ghost": 1}}, "ghost"),
        ({"position": [10**9]}, "position"),
        ({"position": []}, "positions"),
        ({"sample": "ghost"}, "no output"),
    ],
)
def test_a_request_beyond_the_bundle_is_refused(fleet: Fleet, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        ask(fleet, **changes)
    assert caught.value.where == "board"
    assert len(ask(fleet).seconds) == 2, "and it goes on"


@pytest.mark.parametrize(
    "ring", [[], ["board", "board"], ["phone"], ["board", "ghost"], ["phone", "board", "phone"]]
)
def test_a_ring_that_cannot_be_is_refused(fleet: Fleet, ring: list[str]) -> None:
    with fleet.probe("board") as probe, pytest.raises(RunError, match="no ring"):
        probe.join(ring, {})
    assert ask(fleet).seconds


def test_a_device_that_does_not_answer(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partc.profiler.client.CONNECT_S", 0.3)
    with pytest.raises(RunError, match="phone does not answer") as caught:
        Fleet(bundle, {"phone": "127.0.0.1:9"}).probe("phone")
    assert "--measure" in str(caught.value.hint)


@pytest.mark.parametrize("asked", [0, 1], ids=["before", "between"])
def test_a_runner_of_our_own_that_is_killed_is_named(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    rings = []

    def launch(*arguments: Any, **options: Any) -> LocalRing:
        rings.append(launch_local(*arguments, **options))
        return rings[0]

    def kill(what: str, done: int, total: int) -> None:
        if (what, done) == ("measure board", asked):
            os.kill(rings[0].pids["board"], signal.SIGKILL)

    monkeypatch.setattr("partc.profiler.measurement.launch_local", launch)
    monkeypatch.setattr("partc.profiler.client.CONNECT_S", 1.0)
    devices = load_devices(bundle.parent / "given.yaml")
    with pytest.raises(RunError, match=r"the runner of board ended \(signal 9\)") as caught:
        measure(bundle, devices, connect=False, insecure=False, quick=True, progress=kill)
    assert "--measure" not in str(caught.value.hint)


def test_no_time_is_nothing() -> None:
    """Where the noise of the overheads is larger than what is left."""
    task = Task("d", "decode", (0,), {}, (0,), (1,), "", 0)
    entry = timing_entry(task, Timed(1e-4, 0.0, 5), 2e-4)
    assert entry["seconds"] == pytest.approx(1e-5)
    assert timing_entry(task, Timed(1e-3, 0.0, 5), 2e-4)["seconds"] == pytest.approx(8e-4)


def test_a_device_with_another_bundle(bundle: Path, fleet: Fleet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (tmp_path / "given.yaml").write_text(DEVICES)
    prepare(other, load_devices(tmp_path / "given.yaml"), None, True, no_progress)
    with pytest.raises(RunError, match="does not take this client's key"):
        Fleet(other, fleet.addresses).probe("board")


def test_another_architecture_is_said_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "devices.yaml").write_text(DEVICES.replace("arch: x86_64, ", ""))
    assert run(["profile", "--target", "devices.yaml"]) == 1
    told = capsys.readouterr().err
    assert "phone is aarch64 in devices.yaml, but this machine is x86_64" in told
    assert "--prepare" in told
    assert not (folder / "profile").exists()


def test_the_devices_of_the_bundle_are_not_those_asked_for(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES.replace("board", "tablet"))
    with pytest.raises(UserError, match="prepared for other devices: phone, board"):
        measure(bundle, load_devices(path), connect=True, insecure=False, quick=True, progress=no_progress)


def test_nothing_but_a_profile_is_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "profile").mkdir()
    (folder / "profile" / "thesis.tex").write_text("years of work")
    assert run(["profile", "--target", "devices.yaml"]) == 1
    assert "thesis.tex" in capsys.readouterr().err
    with pytest.raises(BundleError, match="not prepared"):
        load_work(folder / "profile")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--host", "--target", "devices.yaml"],
        ["--host", "--connect"],
        ["--host", "--prepare"],
        ["--target", "devices.yaml", "--connect", "--prepare"],
    ],
)
def test_options_that_do_not_go_together(arguments: list[str]) -> None:
    assert run(["profile", *arguments]) == 2


@pytest.mark.ort
def test_devices_that_are_connected_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way of a user with real devices: prepare, start the runners by hand, connect."""
    text = DEVICES.replace('"null"', "ort")
    (folder / "devices.yaml").write_text(text)
    assert run(["profile", "--target", "devices.yaml", "--quick", "--prepare"]) == 0
    assert "partc-runner --bundle" in capsys.readouterr().out
    with launch_local(folder / "profile", measure=True) as ring:
        for name, address in ring.addresses.items():
            text = text.replace(f"{name}: {{", f"{name}: {{address: '{address}', ", 1)
        (folder / "devices.yaml").write_text(text)
        assert run(["profile", "--target", "devices.yaml", "--quick", "--connect", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["links"]) == {"phone->board", "board->phone"}
    assert all(one["flops_per_s"] > 0 for one in found["devices"].values())
    assert all(one["latency_s"] >= 0 for one in found["links"].values())
    assert (
        load_devices(folder / "profile" / "devices.yaml").devices["phone"].address == ring.addresses["phone"]
    )


@pytest.mark.ort
def test_this_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert run(["profile", "--host", "--quick"]) == 0
    assert "profile: host" in capsys.readouterr().out
    (folder / "devices.yaml").write_text("source: me\ndevices: {me: {target: ort, profile: host}}\n")
    assert load_devices("devices.yaml").devices["me"].flops_per_s > 0


def test_new_keys_for_a_profile_fit_every_device(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "copy")
    assert run(["keys", str(tmp_path / "copy")]) == 0
    for name in ("phone", "board"):
        assert "client" in json.loads(
            (tmp_path / "copy" / "devices" / name / "keys" / "peers.json").read_text()
        )


def test_a_measuring_runner_ends_with_its_input(bundle: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "partc.runtime",
        "--stdio",
        "--measure",
        "--bundle",
        str(bundle / "devices/phone"),
    ]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["device"] == "phone"


def test_prompts_of_the_rings_fit_into_what_is_read_before() -> None:
    info = ModelInfo("a", "text2text-generation", dims={"source": 32})
    dims = ring_dims(info, Work((), ProbeSizes()))
    assert dims == {"batch": 1, "sequence": LONGEST_PROMPT, "source": LONGEST_PROMPT}
    assert "source" not in ring_dims(ModelInfo("a", "text-generation"), Work((), ProbeSizes()))
