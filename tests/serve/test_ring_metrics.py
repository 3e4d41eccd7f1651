"""Metrics of rings and devices, and the rules and the dashboard that use them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from partc.format.readings import Readings
from partc.format.status import Change, DeviceStatus, RingStatus, Steps, Vitals, Work
from partc.serve.metrics import Metrics
from partc.serve.ring_metrics import DEVICE_METRICS, RING_METRICS, KnownRing, ring_lines

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
_NAME = re.compile(r"\bpartc_[a-z_]+\b")
_UNITS = ("_seconds", "_bytes", "_celsius", "_ratio", "_total")

VITALS = Vitals(
    readings=Readings(memory_own_bytes=50 << 20, memory_available_bytes=2 << 30, temperature_c=41.0, battery=0.83,
                      is_plugged=False),
    reached=("battery",),
    work=(Work("part_0", "decode", 9, 0.001), Work("sample", "decode", 9, 0.0005)),
    queue=1,
    links={"board": False},
)  # fmt: skip
STATUS = RingStatus(
    epoch=2,
    placement="p",
    predicted={"decode_s": 0.005},
    steps=(Steps("decode", 9, 0.006),),
    devices=(
        DeviceStatus(
            device="laptop", submodules=((0, 4),), is_present=True, age_s=0, answer_s=0, vitals=VITALS
        ),
        DeviceStatus(device="board", away_s=9.0, losses=2),
    ),
    changes=(Change(epoch=2, age_s=1, cause="lost board", stopped_s=0.6),),
    moves=1,
)


def lines() -> list[str]:
    return list(ring_lines({"home": KnownRing(STATUS, {"laptop": 0.001}, 3.5)}))


def test_a_ring_and_its_devices() -> None:
    found = {line for line in lines() if not line.startswith("#")}
    assert {
        'partc_epoch{ring="home"} 2',
        'partc_moves_total{ring="home"} 1',
        'partc_step_seconds{ring="home"} 0.006',
        'partc_planned_step_seconds{ring="home"} 0.005',
        'partc_status_age_seconds{ring="home"} 3.5',
        'partc_device_present{ring="home",device="laptop"} 1',
        'partc_device_present{ring="home",device="board"} 0',
        'partc_device_losses_total{ring="home",device="board"} 2',
        'partc_device_step_seconds{ring="home",device="laptop"} 0.0015',
        'partc_device_planned_step_seconds{ring="home",device="laptop"} 0.001',
        'partc_device_link_up{ring="home",device="laptop",peer="board"} 0',
        'partc_device_limit_reached{ring="home",device="laptop",limit="battery"} 1',
        'partc_device_battery_ratio{ring="home",device="laptop"} 0.83',
    } <= found


def test_a_device_that_is_away_has_no_figures() -> None:
    of_board = [line.partition("{")[0] for line in lines() if 'device="board"' in line]
    assert sorted(of_board) == [
        "partc_device_losses_total",
        "partc_device_present",
        "partc_device_submodules",
    ]


def test_names_follow_the_conventions() -> None:
    metrics = (*RING_METRICS, *DEVICE_METRICS)
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.name.startswith("partc_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.about.endswith(".")
    assert {metric.name for metric in metrics if metric.name.endswith(_UNITS)}


def known_names() -> set[str]:
    """The names of all samples that /metrics may have."""
    text = Metrics(rings={"home": "ready"}).text(lines())
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    histograms = {line.split()[2] for line in text.splitlines() if line.endswith(" histogram")}
    return names | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


def used_names(expressions: list[str]) -> set[str]:
    return {name for expression in expressions for name in _NAME.findall(expression)}


def rule_expressions() -> list[str]:
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def dashboard_expressions() -> list[str]:
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


@pytest.mark.parametrize(
    "expressions", [rule_expressions(), dashboard_expressions()], ids=["alerts", "dashboard"]
)
def test_every_metric_that_the_examples_use_exists(expressions: list[str]) -> None:
    assert used_names(expressions), "the examples use metrics"
    assert used_names(expressions) <= known_names()


def test_a_metric_that_does_not_exist_is_found() -> None:
    assert not used_names(["rate(partc_device_lost_total[1h]) > 0"]) <= known_names()


def test_rules_have_what_an_alert_needs() -> None:
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert rule["alert"].startswith("Partc")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")
