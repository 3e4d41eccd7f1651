"""Moves by hand: what is asked for, and what the plan says of it."""

from __future__ import annotations

import pytest

from partc.balance.artifacts import Artifacts, read_artifacts
from partc.balance.by_hand import Change, change_to
from partc.config.placement import parse_range
from partc.errors import PlanError
from partc.format.placement import stages_of
from tests.balance.builds import write_build


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return read_artifacts(write_build(tmp_path_factory.mktemp("builds") / "build"))


def change(artifacts: Artifacts, text: str, device: str) -> Change:
    wanted = parse_range(text, "--submodules")
    assert wanted is not None
    return change_to(artifacts, artifacts.stages, wanted, device)


@pytest.mark.parametrize("text", ["submodules 2-3", "layer 1"])
def test_sub_modules_and_layers_move(artifacts: Artifacts, text: str) -> None:
    moved = change(artifacts, text, "phone")
    assert moved.after == stages_of(["phone"] * 4 + ["old"] * 2)
    assert moved.rows == [
        ("phone", "0-1", "0-3", "4 B", "6 B"),
        ("board", "2-3", "-", "-", "6 B"),
        ("old", "4-5", "4-5", "2 B", "6 B"),
    ]
    assert moved.text == "15.7 ms per step before, 17.3 ms per step after: 1.56 ms more"


def test_the_json_has_what_programs_want(artifacts: Artifacts) -> None:
    moved = change(artifacts, "submodules 2-3", "phone").to_json()
    assert moved["after"] == [
        {"device": "phone", "submodules": [0, 3]},
        {"device": "old", "submodules": [4, 5]},
    ]
    assert moved["after_s_per_token"] > moved["before_s_per_token"] > 0


@pytest.mark.parametrize(
    ("text", "device", "message", "hint"),
    [
        ("submodules 2-9", "phone", "there is no sub-module 9", "the sub-modules are 0-5"),
        ("layer 7", "phone", "there is no layer 7", "layers of this model are 0-2"),
        ("submodules 2-3", "tablet", "'tablet' is none of the devices of this build", "board, old, phone"),
        ("submodules 2-3", "board", "layer 1: board computes that already", None),
        (
            "submodules 0-1",
            "board",
            "board has no copy of layer 0 (part_0); it lies on phone",
            "lie sub-modules 2-3",
        ),
        (
            "submodules 2",
            "phone",
            "sub-modules 2-3 are one piece: no stage can end inside it",
            "0-1, 2-3, 4-5",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    artifacts: Artifacts, text: str, device: str, message: str, hint: str | None
) -> None:
    with pytest.raises(PlanError) as caught:
        change(artifacts, text, device)
    assert caught.value.message == message
    assert caught.value.where is not None
    assert (caught.value.hint is None) if hint is None else (hint in str(caught.value.hint))
