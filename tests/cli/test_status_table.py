"""The table of `partc watch`: what is lost is shown as lost, and all fits 80 columns."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from partc.cli.status_feed import Line, lost_line, missing_figures
from partc.cli.status_table import status_blocks
from partc.cli.tables import show
from partc.format.readings import Readings
from partc.format.status import Change, DeviceStatus, RingStatus, Steps, Vitals, Work

VITALS = Vitals(
    readings=Readings(
        memory_available_bytes=19 << 30,
        memory_own_bytes=520 << 20,
        temperature_c=41.0,
        battery=1.0,
        is_plugged=True,
    ),
    queue=12,
    links={"board": True},
    work=(Work("part_0", "decode", 4, 0.001364),),
)
LAPTOP = DeviceStatus(
    device="laptop", submodules=((0, 4), (12, 12)), is_present=True, age_s=0.1, answer_s=0.01, vitals=VITALS
)
LOST = DeviceStatus(device="board", submodules=((5, 11),), away_s=12.3, vitals=VITALS, losses=1)
SILENT = DeviceStatus(device="phone", submodules=((13, 19),), is_present=True, age_s=5.0, vitals=VITALS)
MOVED = "by hand: layers 2-9 from laptop to board, and more of them, layers 10-13 from phone to laptop"


def line(*devices: DeviceStatus, running: int = 1) -> Line:
    ring = RingStatus(
        epoch=3, placement="p", predicted={"decode_s": 0.00574}, steps=(Steps("decode", 9, 0.0058),),
        running=running, waiting=123, devices=devices,
        changes=(Change(epoch=3, age_s=12.34, cause=MOVED, stopped_s=0.592),),
    )  # fmt: skip
    return Line(time="2026-01-31T12:00:00.250Z", planned_s={"laptop": 0.000203, "board": 0.1}, ring=ring)


def shown(given: Line, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show(*status_blocks(given))
    return capsys.readouterr().out.splitlines()


def row(name: str, lines: list[str]) -> list[str]:
    return next(line.split() for line in lines if line.split()[:1] == [name])


def test_a_lost_device_keeps_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(line(LAPTOP, LOST, SILENT), capsys)
    assert row("board", lines) == ["board", "lost", "5-11", *["-"] * 8]
    assert row("phone", lines) == ["phone", "silent", "13-19", *["-"] * 8]
    assert row("laptop", lines)[:2] == ["laptop", "ok"]
    assert "520" in row("laptop", lines)
    assert "board: lost 12.3 s ago" in lines


def test_a_lost_source_is_said_and_no_figure_of_before_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(lost_line(line(LAPTOP, LOST), 3.2), capsys)
    assert row("laptop", lines)[1:2] == ["unknown"]
    assert "520" not in "".join(lines)
    assert any("The source has told nothing for 3.20 s" in each for each in lines)


def test_all_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(line(LAPTOP, LOST, SILENT), capsys)
    assert max(map(len, lines)) <= 80
    assert len([each for each in lines if "epoch 3, " in each]) == 1
    assert lines[-1].endswith("; stood still for 592 ms"), "a change is on one line"


def test_figures_that_are_missing() -> None:
    idle = replace(LAPTOP, vitals=replace(VITALS, work=()))
    assert missing_figures(line(LAPTOP, LOST)) == []
    assert missing_figures(line(LAPTOP, SILENT)) == ["phone"]
    assert missing_figures(line(idle)) == ["laptop"], "a step is under way, and its time will come"
    assert missing_figures(line(idle, running=0)) == []
