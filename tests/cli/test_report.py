"""run leaves a record in the build, report puts it beside the plan: on real processes of the null engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from partc.cli.main import run
from partc.runs.records import KEPT, read_record, record_files
from tests.runtime.bundles import reseal

pytestmark = pytest.mark.hf
RUN = ["run", "build", "--input", "inputs.npz", "--insecure"]


@pytest.fixture
def build(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build of the chain, and a request for it."""
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    np.savez("inputs.npz", x=np.ones((2, 64), np.float32))
    capsys.readouterr()
    return small / "build"


def test_a_run_is_recorded_and_reported(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in build.glob("devices/*/*.json")}
    assert run(RUN) == 0
    (file,) = record_files(build)
    record = read_record(file)
    plan = json.loads((build / "plan.json").read_text())
    used = [use["device"] for use in plan["predicted"]["memory"]]
    assert list(record.requests[0].timings) == sorted(used, key=list(record.requests[0].timings).index)
    assert set(record.requests[0].timings) == set(used)
    assert record.plan_id == json.loads(next(iter(before.values())))["plan_id"]
    assert record.local

    capsys.readouterr()
    assert run(["report", "build"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "from the start of a step to its result at the source" in shown.out
    assert "all devices were processes of one machine" in shown.out
    assert shown.out.splitlines()[-1] == f"wrote {Path('build/report.html')}"
    assert f"<time>{record.started}</time>" in (build / "report.html").read_text()
    for path, content in before.items():
        assert path.read_bytes() == content, "neither runs nor reports are part of the bundle"
    assert run(RUN) == 0, "a report in the build is no reason to refuse it"


def test_figures_for_programs(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RUN) == 0
    capsys.readouterr()
    assert run(["report", "build", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    plan = json.loads((build / "plan.json").read_text())
    assert data["seconds"] == plan["answer"]["value"]
    assert data["measured"] > 0 and data["one_machine"] is True
    assert data["ratio"] == pytest.approx(data["measured"] / data["seconds"])
    used = {use["device"] for use in plan["predicted"]["memory"]}
    assert {item["name"] for item in data["compared"] if item["kind"] == "device"} == used
    assert any(item["kind"] == "link" for item in data["compared"]) == (len(used) > 1)


def test_no_record(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN, "--no-record"]) == 0
    assert record_files(build) == []
    capsys.readouterr()
    assert run(["report", "build"]) == 0
    assert "no run of this plan yet" in capsys.readouterr().out


def test_a_build_that_cannot_be_written_in_does_not_fail_the_run(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "runs").rename(build.parent / "moved")
    (build / "runs").write_text("")
    assert run(RUN) == 0
    shown = capsys.readouterr()
    assert shown.out == "h5: float32[2, 64]\n"
    assert "note: the run is not recorded" in shown.err
    assert "--no-record" in shown.err


def test_runs_of_the_same_build_with_other_links_count(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other links are another prediction for the same files and programs."""
    assert run(RUN) == 0
    devices = build.parent / "devices.yaml"
    devices.write_text(devices.read_text().replace("2 ms", "3 ms"))
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    capsys.readouterr()
    assert run(["report", "build"]) == 0
    assert "Predicted against measured" in capsys.readouterr().out


def test_runs_of_an_earlier_build_are_passed_over(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A build that replaces another keeps its runs; they say nothing of the new plan."""
    assert run(RUN) == 0
    (old,) = record_files(build)
    devices = build.parent / "devices.yaml"
    devices.write_text(devices.read_text().replace("64 kB", "65 kB"))
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    assert record_files(build) == [old]
    capsys.readouterr()
    assert run(["report", "build"]) == 0
    assert "no run of this plan yet" in capsys.readouterr().out
    assert run(["report", "build", "--run", str(old)]) == 1
    assert "a run of another build" in capsys.readouterr().err


def test_only_so_many_runs_are_kept(build: Path) -> None:
    assert run(RUN) == 0
    (file,) = record_files(build)
    for number in range(KEPT + 1):
        file.with_name(f"20250101T000000-{number}.json").write_text(file.read_text())
    assert run(RUN) == 0
    assert len(record_files(build)) == KEPT
    assert file in record_files(build)


def _break_record(build: Path) -> Path:
    file = build / "runs" / "29990131T120000-0.json"
    file.write_text('{"format": "partc-run/2"}')
    return file


def test_a_damaged_record_is_passed_over_unless_it_is_named(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(RUN) == 0
    (good,) = record_files(build)
    damaged = _break_record(build)
    capsys.readouterr()
    assert run(["report", "build"]) == 0
    shown = capsys.readouterr()
    assert f"note: passed over: {Path('build/runs') / damaged.name}: a damaged run record" in shown.err
    assert read_record(good).started in (build / "report.html").read_text()
    assert run(["report", "build", "--run", str(damaged)]) == 1
    assert "a damaged run record" in capsys.readouterr().err


def test_a_build_of_two_plans_is_refused(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = next(build.glob("devices/*"))
    for file in ("build.json", "placement.json"):
        reseal(folder / file, plan_id="0" * 64)
    assert run(["report", "build"]) == 1
    assert "the folder of board is of another build than that of phone" in capsys.readouterr().err


def _break_plan(build: Path) -> None:
    (build / "plan.json").write_text("{")


def _remove_plan(build: Path) -> None:
    (build / "plan.json").unlink()


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (_break_plan, ["build"], "not valid JSON"),
        (_remove_plan, ["build"], "no such file"),
        (None, ["nowhere"], "give one of the builds found: build"),
        (None, ["nowhere.json"], "no such file"),
        (None, ["."], "give one of the builds found: build"),
        (None, ["build/devices"], "give build"),
        (None, ["build/devices/phone"], "that is one device's folder, not the build"),
        (None, ["build", "--run", "build"], "this is a folder, not a file"),
        (None, ["model.yaml"], "not valid JSON"),
        (None, ["build", "--run", "nowhere.json"], "no such file"),
        (None, ["build", "--run", "build/plan.json"], "not a run record"),
        (None, ["build", "-o", "nodir/report.html"], "there is no folder nodir"),
        (None, ["build", "-o", "build"], "this is a folder, not a file"),
    ],
)
def test_mistakes(
    build: Path, change: object, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if callable(change):
        change(build)
    assert run(["report", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert "hint:" in shown.err
    assert not (build / "report.html").exists()


def test_a_plan_alone(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "build/plan.json", "-o", "alone.html"]) == 0
    assert "wrote alone.html" in capsys.readouterr().out
    assert "a plan of 6 sub-modules in plan.json" in Path("alone.html").read_text()


def test_times_of_another_device_are_refused(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RUN) == 0
    (file,) = record_files(build)
    data = json.loads(file.read_text())
    timings = data["requests"][0]["timings"]
    timings["nobody"] = timings["phone"]
    file.write_text(json.dumps(data))
    capsys.readouterr()
    assert run(["report", "build", "--run", str(file)]) == 1
    assert "requests[0].timings: `nobody` is not one of the devices" in capsys.readouterr().err
    assert run(["report", "build"]) == 0
    assert "note: passed over" in capsys.readouterr().err
