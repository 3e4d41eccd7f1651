"""Placements made of a build's folder, without a compiler."""

from __future__ import annotations

import dataclasses
import json
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from partc.balance.artifacts import Artifacts, read_artifacts
from partc.errors import PlanError, UserError
from partc.format.build import State
from partc.format.contingencies import load_contingencies
from partc.format.placement import parse_placement, placement_json, stages_of
from partc.format.role import Role, check_role, source_role
from partc.planner.model.plan_file import PLAN_FILE
from tests.balance.builds import WITHOUT, problem, write_build


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_build(tmp_path_factory.mktemp("builds") / "build")


@pytest.fixture(scope="module")
def artifacts(build: Path) -> Artifacts:
    return read_artifacts(build)


def test_pieces_lie_between_the_borders_of_all_placements(artifacts: Artifacts) -> None:
    assert [(piece.first, piece.last) for piece in artifacts.pieces] == [(0, 1), (2, 3), (4, 5)]
    holders = [sorted(piece.holders) for piece in artifacts.pieces]
    assert holders == [["phone"], ["board", "phone"], ["board", "old"]]


def test_the_stages_as_compiled_give_the_placement_as_compiled(artifacts: Artifacts) -> None:
    assert artifacts.place(artifacts.stages) == artifacts.compiled


@pytest.mark.parametrize("lost", WITHOUT)
def test_a_loss_is_placed_as_the_compiler_does(build: Path, artifacts: Artifacts, lost: str) -> None:
    source = source_role(build)
    compiled = load_contingencies(source, build / "devices" / source.device)[lost]
    assert artifacts.place(stages_of(WITHOUT[lost])).programs == compiled.programs


def test_every_allowed_placement_is_sound(artifacts: Artifacts) -> None:
    """Whatever the pieces allow, even what returns to a device, passes the checks that runners make."""
    holders = [sorted(piece.holders) for piece in artifacts.pieces]
    for names in product(*holders):
        assignment = [name for name in names for _ in range(2)]
        placement = artifacts.place(stages_of(assignment))
        again = parse_placement(placement_json(placement))
        for device, build in artifacts.builds.items():
            check_role(Role(build, again), device)


def test_a_value_that_skips_a_stage_goes_straight_to_its_reader(artifacts: Artifacts) -> None:
    programs = artifacts.place(stages_of(["phone"] * 2 + ["board"] * 2 + ["old"] * 2)).programs["prefill"]
    assert "send b to board\nsend x, b to old\n" in programs["phone"]
    assert "recv x, b from phone\nrecv d from board\n" in programs["old"]


def test_a_stage_is_one_message(artifacts: Artifacts) -> None:
    programs = artifacts.place(stages_of(["phone"] * 4 + ["board"] * 2)).programs["prefill"]
    assert programs["phone"] == (
        "run part_0 (x) -> (b)\nrun part_1 (b) -> (d)\nsend x, b, d to board\nrecv f from board\nemit d, f\n"
    )


def test_an_idle_device_keeps_its_address(artifacts: Artifacts) -> None:
    placement = artifacts.place(stages_of(["phone"] * 4 + ["old"] * 2))
    assert placement.ring == ("phone", "old")
    assert set(placement.addresses) == {"phone", "board", "old"}


@pytest.mark.parametrize(("held_bytes", "kept"), [(2, {"part_2": "phone"}), (3, {})])
def test_caches_of_others_are_kept_where_there_is_room(
    artifacts: Artifacts, held_bytes: int, kept: dict[str, str]
) -> None:
    """The phone has 6 bytes, and takes 4 once it computes part_1; so its copy of those rows is none any more."""
    rows = State("rows", "rows.in", "rows.out", "int8", (held_bytes,))
    mirrored = dataclasses.replace(
        artifacts,
        builds={
            name: replace(
                build,
                model=replace(build.model, max_requests=1),
                submodules=tuple(replace(item, states=(rows,)) for item in build.submodules),
            )
            for name, build in artifacts.builds.items()
        },
        compiled=replace(artifacts.compiled, mirrors={"part_1": "phone", "part_2": "phone"}),
    )
    assert mirrored.place(stages_of(["phone"] * 4 + ["old"] * 2)).mirrors == kept


def test_what_a_device_does_not_hold_is_refused(artifacts: Artifacts) -> None:
    with pytest.raises(PlanError) as caught:
        artifacts.place(stages_of(["phone"] * 2 + ["old"] * 4))
    assert caught.value.message == "old has no copy of layer 1 (part_1); it lies on board, phone"
    assert "survive: one" in str(caught.value.hint)


def test_a_stage_that_ends_inside_a_piece_is_refused(artifacts: Artifacts) -> None:
    with pytest.raises(PlanError, match="sub-modules 2-3 are one piece"):
        artifacts.place(stages_of(["phone"] * 3 + ["board"] * 3))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    tight = read_artifacts(write_build(tmp_path / "build", problem(memory=3)))
    with pytest.raises(PlanError, match="phone needs 4 B and has 3 B"):
        tight.place(stages_of(["phone"] * 4 + ["old"] * 2))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("x", "layers: expected `array`"),
        ([[1]], "layers: .0.: expected `array` of length 2"),
        ([], "layers: expected a pair"),
    ],
)
def test_layers_changed_by_hand_are_refused(tmp_path: Path, layers: object, message: str) -> None:
    changed = write_build(tmp_path / "build")
    plan = json.loads((changed / PLAN_FILE).read_text(encoding="utf-8"))
    (changed / PLAN_FILE).write_text(json.dumps({**plan, "layers": layers}), encoding="utf-8")
    with pytest.raises(UserError, match=f"plan.json: {message}"):
        read_artifacts(changed)
