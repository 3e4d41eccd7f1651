"""`partc plan`: mistakes of the user, and of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.planner.exact import intervals

PROBLEM = {
    "objective": "latency",
    "source": "a",
    "devices": [{"name": "a", "memory_bytes": 9}],
    "submodules": [{"memory_bytes": 1, "time_s": {"a": 0.5}}],
    "edges": [],
    "links": [],
}


@pytest.mark.parametrize("strategy", ["optimal", "even", "lingualinked"])
def test_a_bug_of_the_planner_is_a_bug_and_no_worse_plan(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistake(*arguments: object) -> None:
        raise TypeError("a mistake of ours")

    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    monkeypatch.setattr(intervals, "_search_exactly", mistake)
    assert run(["plan", "--problem", str(file), "--strategy", strategy]) == 70
    shown = capsys.readouterr().err
    assert (
        "TypeError: a mistake of ours" in shown and "Traceback" in shown and "this is a bug of partc" in shown
    )


@pytest.mark.parametrize(
    ("options", "message", "where"),
    [
        ("int8_products: x", "there are no int8 products by 'x'", "device board: options.int8_products"),
        ("disable: [nope]", "there is no fusion 'nope'", "device board: options.disable"),
    ],
)
def test_plan_and_compile_refuse_the_same_options(
    options: str, message: str, where: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (small / "devices.yaml").read_text()
    board = f"board: {{target: ort, options: {{{options}}},"
    (small / "devices.yaml").write_text(text.replace('board: {target: "null",', board))
    shown = []
    for command in ("plan", "compile"):
        assert run([command, "model.yaml", "--target", "devices.yaml"]) == 1
        shown.append(capsys.readouterr().err)
    assert shown[0] == shown[1]
    assert message in shown[0] and f"where: {where}" in shown[0]


def test_a_plan_needs_no_tools_of_targets(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (small / "devices.yaml").read_text()
    (small / "devices.yaml").write_text(
        text.replace('board: {target: "null"', "board: {target: tvm, arch: aarch64")
    )
    monkeypatch.setattr("targets.tvm.target.find_toolchain", lambda *_: pytest.fail("asked for a tool"))
    assert run(["plan", "model.yaml", "--target", "devices.yaml"]) == 0
    assert "board" in capsys.readouterr().out
