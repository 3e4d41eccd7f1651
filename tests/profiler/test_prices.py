"""times.json as compile reads it: what was measured wins, where it was measured for what is planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partc.config.devices import DevicesConfig, load_devices
from partc.config.times import DeviceTimes
from partc.errors import ConfigError
from partc.ir.digests import submodule_digest
from partc.ir.graph import Module
from partc.ir.workload import workload
from partc.pipeline.contract import Context
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.planner.model.problem import Link
from partc.planner.model.roofline import count_measured, overheads, prices, roofline_s
from passes.partition_graph import PartitionGraph, problem_of
from tests.passes.models import decoder

PROFILED = "find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"
DEVICES = """
source: phone
measured: times.json
devices:
  phone: {target: "null", flops: 10 GFLOP/s, memory_bandwidth: 5 GB/s, memory: 1 GiB}
  board: {target: "null", flops: 40 GFLOP/s, memory_bandwidth: 20 GB/s, memory: 1 GiB, threads: 2}
links: {default: {bandwidth: 800 Mbit/s, latency: 1 ms}}
"""


def profiled() -> Module:
    module = decoder("llama")
    run_passes(module, load_passes(PROFILED))
    return module


def digest(module: Module, index: int, phase: int) -> str:
    assert module.submodules is not None
    return submodule_digest(module.submodules[index].nodes, workload(module.info)[phase])


def device(times: dict[str, float], **changes: Any) -> dict[str, Any]:
    entries = {key: {"seconds": value} for key, value in times.items()}
    return {"target": "null", "provider": "cpu", "threads": 0, "times": entries, **changes}


def write(folder: Path, devices: dict[str, Any], changes: dict[str, Any] | None = None) -> Path:
    (folder / "times.json").write_text(
        json.dumps(
            {"format": "partc-times/1", "measured": "2026-01-01", "devices": devices, **(changes or {})}
        )
    )
    path = folder / "devices.yaml"
    path.write_text(DEVICES)
    return path


def decode_times(module: Module, devices: DevicesConfig) -> list[dict[str, float]]:
    return [dict(times) for times in problem_of(module, devices).phases[1].time_s]


def test_a_measured_time_stands_for_all_that_are_alike_on_its_device_alone(tmp_path: Path) -> None:
    module = profiled()
    devices = load_devices(write(tmp_path, {"phone": device({digest(module, 1, 1): 0.125})}))
    times = decode_times(module, devices)
    assert module.profile is not None
    assert times[1]["phone"] == times[3]["phone"] == 0.125
    for index, entry in enumerate(times):
        cost = module.profile[index].phases["decode"]
        assert entry["board"] == roofline_s(cost, devices.devices["board"])
        if index not in (1, 3):
            assert entry["phone"] == roofline_s(cost, devices.devices["phone"])
    prefill = problem_of(module, devices).phases[0].time_s
    assert prefill[1]["phone"] == roofline_s(module.profile[1].phases["prefill"], devices.devices["phone"])


def test_the_plan_keeps_the_overheads_of_devices_that_were_measured(tmp_path: Path) -> None:
    phone = device({}, call_overhead_s=0.125, step_overhead_s=0.25, hop_overhead_s=0.5)
    board = device({}, call_overhead_s=9.0, threads=1)
    devices = load_devices(write(tmp_path, {"phone": phone, "board": board}))
    assert overheads(devices) == {"phone": {"call_s": 0.125, "step_s": 0.25, "hop_s": 0.5}}


def test_the_source_pays_for_a_step_in_its_first_submodule(tmp_path: Path) -> None:
    module = profiled()
    measured = device({digest(module, 0, 1): 0.5}, step_overhead_s=0.25)
    board = device({}, step_overhead_s=9.0, threads=2)
    times = decode_times(module, load_devices(write(tmp_path, {"phone": measured, "board": board})))
    assert times[0]["phone"] == 0.75
    assert times[0]["board"] < 9
    assert times[1]["phone"] < 0.25


def test_elsewhere_the_message_that_begins_a_stage_pays(tmp_path: Path) -> None:
    board = device({}, hop_overhead_s=0.5, threads=2)
    phone = device({}, hop_overhead_s=9.0)
    module = profiled()
    given = {(link.sender, link.receiver): link.latency_s for link in _links(module, tmp_path, {})}
    found = _links(module, tmp_path, {"phone": phone, "board": board})
    more = {(link.sender, link.receiver): link.latency_s for link in found}
    assert more["phone", "board"] == pytest.approx(given["phone", "board"] + 0.5)
    assert more["board", "phone"] == given["board", "phone"], "the source pays in sub-module 0"


def _links(module: Module, folder: Path, times: dict[str, Any]) -> tuple[Link, ...]:
    return problem_of(module, load_devices(write(folder, times))).links


OTHER = [{"threads": 1}, {"provider": "cuda"}, {"target": "ort"}, {"options": {"chunks": [16]}}]


@pytest.mark.parametrize("change", OTHER)
def test_times_of_other_settings_do_not_count(tmp_path: Path, change: dict[str, Any]) -> None:
    module = profiled()
    found = device({digest(module, 1, 1): 0.125}, step_overhead_s=1.0, **change)
    times = decode_times(module, load_devices(write(tmp_path, {"phone": found})))
    assert all(entry["phone"] < 0.125 for entry in times)


def test_the_plan_says_how_many_times_were_measured(tmp_path: Path) -> None:
    module = profiled()
    path = write(tmp_path, {"phone": device({digest(module, 1, 1): 0.125})})
    assert module.submodules is not None
    every = 2 * 2 * len(module.submodules)
    alike = sum(digest(module, s.index, 1) == digest(module, 1, 1) for s in module.submodules)
    assert count_measured(module.submodules, workload(module.info), load_devices(path)) == {
        "measured": alike,
        "of": every,
    }
    PartitionGraph(devices=str(path)).apply(module, Context())
    assert module.plan is not None
    times = module.plan.answer.explain["times"]
    assert (times["measured"], times["of"]) == (alike, every)
    again = "profile again: partc profile MODEL --target DEVICES"
    assert times["advice"] == [f"why estimated: board was not measured; {again}"]


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"threads": 2}, {}, "phone was measured with threads 2, now 0"),
        ({"target": "ort"}, {}, "phone was measured with target ort, now null"),
        ({"options": {"chunks": [16]}}, {}, "phone was measured with chunks [16], now default"),
        ({}, {"max_sequence": 4096}, "measured with max_sequence 4096, now 512"),
        ({}, {"batch": 8, "prompt": 7}, "measured with batch 8, now 1; measured with prompt 7, now 32"),
        ({}, {}, "its sub-modules are others"),
    ],
)
def test_times_that_do_not_fit_are_explained(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    devices = {"phone": device({}, **changes), "board": device({}, threads=2)}
    module = profiled()
    assert module.info.max_sequence == 512 and module.info.prompt == 32
    PartitionGraph(devices=str(write(tmp_path, devices, {"settings": settings}))).apply(module, Context())
    assert module.plan is not None
    (line,) = module.plan.answer.explain["times"]["advice"]
    assert reason in line and line.endswith("profile again: partc profile MODEL --target DEVICES")


def test_options_are_held_against_those_of_the_file() -> None:
    """A file has lists where devices.yaml gives the target tuples."""
    times = DeviceTimes("tvm", "cpu", 0, {}, options={"chunks": [16], "linker": "ld.lld"})
    assert times.fits("tvm", "cpu", 0, {"linker": "ld.lld", "chunks": (16,)})
    assert not times.fits("tvm", "cpu", 0, {"linker": "ld.lld", "chunks": (64,)})
    assert not times.fits("tvm", "cpu", 0, {})


def test_times_of_a_busy_machine_are_rough(tmp_path: Path) -> None:
    devices = {"phone": device({}, rough=True), "board": device({}, threads=2)}
    module = profiled()
    PartitionGraph(devices=str(write(tmp_path, devices))).apply(module, Context())
    assert module.plan is not None
    rough, _ = module.plan.answer.explain["times"]["advice"]
    assert rough.startswith("rough: measured on a busy machine (phone)")


def test_without_times_nothing_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = profiled()
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES.replace("measured: times.json\n", ""))
    monkeypatch.setattr("partc.planner.model.roofline.submodule_digest", None)
    step = workload(module.info)[0]
    costs = [item.phases["prefill"] for item in module.profile or []]
    assert len(prices(module.submodules or [], costs, step, load_devices(path))) == len(costs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "partc-times/9"}, "partc-times/1"),
        ({"devices": {"phone": {"target": "ort"}}}, "provider"),
        ({"devices": {"phone": device({"00": -1.0})}}, "finite number"),
        ({"devices": {"phone": device({"00": 0})}}, "above zero"),
        ({"devices": {"phone": device({"00": 1e308})}}, "up to 1e"),
        ({"devices": {"phone": device({"00": 10**400})}}, "is too large"),
        ({"devices": {"phone": device({}, machine=[])}}, "machine: expected a mapping"),
        ({"measured": 3}, "expected a text"),
        ({"extra": 1}, "unknown key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, {}, changes)
    with pytest.raises(ConfigError, match=message):
        load_devices(path)


def test_a_file_without_devices_or_a_folder_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {})
    (tmp_path / "times.json").write_text('{"format": "partc-times/1", "measured": "now"}')
    with pytest.raises(ConfigError, match="the key `devices` is missing"):
        load_devices(path)
    path.write_text(DEVICES.replace("times.json", "."))
    with pytest.raises(ConfigError, match=r"devices.yaml:3: measured: .* is a folder, not a file"):
        load_devices(path)


def test_a_missing_file_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES)
    with pytest.raises(ConfigError, match="there is no file") as caught:
        load_devices(path)
    assert "partc profile" in str(caught.value.hint)
    assert f"{path}:3" in str(caught.value.where)


def test_a_profile_of_this_machine_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "devices.yaml"
    path.write_text('source: here\ndevices: {here: {target: "null", profile: host}}\n')
    with pytest.raises(ConfigError, match="not measured yet") as caught:
        load_devices(path)
    assert caught.value.hint == "partc profile --host"
    (tmp_path / "partc").mkdir()
    (tmp_path / "partc" / "host.yaml").write_text(
        "title: this machine\narch: x86_64\nprovider: cpu\n"
        "flops: {value: 7 GFLOP/s, source: measured}\nmemory_bandwidth: {value: 3 GB/s, source: measured}\n"
        "memory: {value: 2 GB, source: free then}\n"
    )
    assert load_devices(path).devices["here"].flops_per_s == 7e9
