"""`keep: prompt+answer`: tokens of the answer are drawn on the source, and no other device is told any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.format.names import device_folders
from partc.format.role import load_role
from partc.ir.graph import Node, Submodule, Value, Weight
from partc.planner.model.layers import Shape, shape_of
from tests.e2e.kills import drawn
from tests.e2e.test_survive import MODEL

pytestmark = [pytest.mark.hf, pytest.mark.ort]

WEIGHTED = Node(
    "MatMul", [Value("x", "f32", (1, 2)), Weight("w", "f32", (2, 2))], [Value("y", "f32", (1, 2))]
)
PLAIN = Node("Tanh", [Value("y", "f32", (1, 2))], [Value("z", "f32", (1, 2))])
DEVICES = """\
source: phone
keep: {keep}
objective: {objective}
{more}
devices:
  phone: {{target: ort, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: {memory}}}
  board: {{target: ort, flops: 40 GFLOP/s, memory_bandwidth: 30 GB/s, memory: 1 MB}}
links:
  default: {{bandwidth: 1 Gbit/s, latency: 0.1 ms}}
"""


def files(
    folder: Path, keep: str, memory: str = "180 kB", objective: str = "latency", more: str = ""
) -> list[str]:
    (folder / "model.yaml").write_text(MODEL)
    text = DEVICES.format(keep=keep, memory=memory, objective=objective, more=more)
    (folder / "devices.yaml").write_text(text)
    return [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]


def compiled(folder: Path, keep: str, objective: str = "latency", more: str = "") -> Path:
    build = folder / keep
    assert run(["compile", *files(folder, keep, objective=objective, more=more), "-o", str(build)]) == 0
    return build


def drawing(build: Path) -> set[str]:
    """The devices whose programs draw tokens."""
    return {
        role.device
        for role in map(load_role, device_folders(build))
        if any(
            "sample" in text for texts in role.placement.programs.values() for text in [texts[role.device]]
        )
    }


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_source_draws_the_tokens(objective: str, tmp_path: Path) -> None:
    plain, kept = (compiled(tmp_path, keep, objective) for keep in ("prompt", "prompt+answer"))
    assert drawing(plain) == {"board"}
    assert drawing(kept) == {"phone"}
    assert drawn(kept) == drawn(plain)


def test_a_rule_in_the_way_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "pin: {board: layers 5}"
    assert run(["plan", *files(tmp_path, "prompt+answer", more=more)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "`pin: {board: layer 5}` and `keep: prompt+answer` contradict each other" in said


def test_what_makes_the_answer_stays_together(tmp_path: Path) -> None:
    """Also where the graph is cut everywhere: the head is not given away, and something small behind it kept."""
    shape = shape_of([Submodule(0, [WEIGHTED]), Submodule(1, [WEIGHTED]), Submodule(2, [PLAIN])])
    assert list(shape.answering) == [1, 2]
    assert list(Shape(3, None).answering) == [2]


def test_it_is_named_where_no_plan_fits_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a plan that returns to the phone could keep the answer there."""
    assert run(["plan", *files(tmp_path, "prompt+answer", more="returns: 0")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "without `keep: prompt+answer` there would be a plan" in said
    assert "hint: write `returns: any`" in said


def test_another_word_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *files(tmp_path, "everything")]) == 1
    assert "prompt+answer" in capsys.readouterr().err


def test_plan_json_says_where_the_last_part_is(tmp_path: Path) -> None:
    plan = json.loads((compiled(tmp_path, "prompt+answer") / "plan.json").read_text())
    assignment = plan["answer"]["assignment"]
    assert (assignment[0], assignment[-1]) == ("phone", "phone")
    assert "board" in assignment
