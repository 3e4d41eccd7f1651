"""A run leaves a record, and profile --from learns from it: on real processes of the null engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from partc.cli.main import run
from partc.config.devices import load_devices
from partc.format.placement import stages_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem_json import read_problem
from partc.runs.records import record_files

pytestmark = pytest.mark.hf
RUN = ["run", "build", "--input", "inputs.npz", "--insecure"]
FROM = ["profile", "model.yaml", "--target", "devices.yaml", "--from", "build/runs"]


@pytest.fixture
def build(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build of the chain that ran twice."""
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    np.savez("inputs.npz", x=np.ones((2, 64), np.float32))
    assert run(RUN) == run(RUN) == 0
    capsys.readouterr()
    return small / "build"


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_next_plan_has_the_times_of_the_runs(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*FROM, "--json"]) == 0
    found = report(capsys)
    assert (found["runs"], found["requests"]) == (2, 2)
    used = set(found["devices"])
    (idle,) = set(load_devices("devices.yaml").devices) - used
    assert found["notes"] == [f"{idle} took no part: priced as before"]
    file = Path("profile/devices.yaml")
    assert found["output"] == str(file)
    devices = load_devices(file)
    assert devices.measured is not None and set(devices.measured.devices) == used
    assert devices.devices == load_devices("devices.yaml").devices, "the figures of devices stay as they were"
    assert run(["plan", "model.yaml", "--target", str(file), "--json"]) == 0
    plan = report(capsys)
    times = plan["answer"]["explain"]["times"]
    assert 3 * times["measured"] == 2 * times["of"], "of two devices of three"
    # On a busy machine the next plan may be another one: the one that ran comes out at what it took.
    ran = json.loads((build / "plan.json").read_text())["answer"]["assignment"]
    (step,) = evaluate(read_problem(plan["problem"]), stages_of(ran)).phases
    observed = {name: one["observed"][0] for name, one in found["devices"].items()}
    for stage in step.stages:
        assert observed[stage.device]["submodules"] == [[stage.first, stage.last]]
        assert stage.seconds == pytest.approx(observed[stage.device]["computed_s"], rel=1e-3)
    for message in step.messages:
        link = found["links"][f"{message.sender}->{message.receiver}"]
        took = link["latency_s"] + message.bytes / link["bandwidth_bytes_per_s"]
        assert message.seconds == pytest.approx(took, rel=0.01)


def test_tables_for_people(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FROM) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "Devices in 2 requests of 2 runs, one step" in shown.out
    assert shown.out.splitlines()[-1] == (
        f"wrote {Path('profile/devices.yaml')}; next: partc compile model.yaml --target "
        f"{Path('profile/devices.yaml')}"
    )
    # What was learnt may be learnt from again, into the same folder.
    again = [
        "profile",
        "model.yaml",
        "--target",
        "profile/devices.yaml",
        "--from",
        "build",
        "--from",
        "build",
    ]
    assert run(again) == 0
    assert run(["compile", "model.yaml", "--target", "profile/devices.yaml", "-o", "next"]) == 0


def test_runs_of_an_earlier_build_are_passed_over(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(record_files(build)[0].read_text())
    (build / "runs" / "20250101T000000-0.json").write_text(json.dumps({**record, "plan_id": "5e" * 32}))
    (build / "runs" / "20250101T000001-0.json").write_text("{}")
    device = next(iter(record["requests"][0]["timings"]))
    del record["requests"][0]["timings"][device]
    (build / "runs" / "20250101T000002-0.json").write_text(json.dumps(record))
    assert run([*FROM, "--json"]) == 0
    found = report(capsys)
    assert found["runs"] == 2
    notes = dict(note.split(maxsplit=1) for note in found["notes"] if "priced" not in note)
    assert "is of another build (plan 5e5e5e5e5e5e, not " in notes["20250101T000000-0.json"]
    assert "not a run record" in notes["20250101T000001-0.json:"]
    assert "lacks the times of a device" in notes["20250101T000002-0.json"]


def test_runs_that_tell_nothing(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in record_files(build):
        file.write_text(json.dumps({**json.loads(file.read_text()), "plan_id": "5e" * 32}))
    assert run(FROM) == 1
    told = capsys.readouterr().err
    assert "no run of this build: " in told and "is of another build" in told
    assert "hint: run the build first: partc run build --input FILE.npz" in told
    for file in record_files(build):
        file.unlink()
    assert run(FROM) == 1
    assert "there are no records of runs" in capsys.readouterr().err
    assert not Path("profile").exists()


def test_a_model_that_changed(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load("net.onnx")
    del model.graph.node[2:]
    model.graph.output[0].name = model.graph.node[1].output[0]
    onnx.save(model, "net.onnx")
    assert run(FROM) == 1
    told = capsys.readouterr().err
    assert "the runs are of another model, workload or cut rule" in told
    assert not Path("profile").exists()


@pytest.mark.parametrize(
    "more", [["--connect"], ["--prepare"], ["--quick"], ["--insecure"], ["--host"]], ids=lambda more: more[0]
)
def test_options_that_do_not_go_together(more: list[str]) -> None:
    assert run([*FROM, *more]) == 2
    assert run(["profile", "--target", "devices.yaml", "--from", "build/runs"]) == 2
