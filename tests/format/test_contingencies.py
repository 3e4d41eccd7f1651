"""Placements for the loss of a device: read by the source, sealed like the one in force, and never of another build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from partc.errors import BundleError
from partc.format.contingencies import contingency_file, load_contingencies
from partc.format.files import verify_files
from partc.format.placement import Placement
from partc.format.role import load_role
from tests.balance.builds import WITHOUT, write_build
from tests.runtime.bundles import reseal


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_build(tmp_path / "build") / "devices" / "phone"


def load(folder: Path) -> dict[str, Placement]:
    return load_contingencies(load_role(folder), folder)


def test_the_source_has_one_for_each_loss(source: Path) -> None:
    found = load(source)
    assert set(found) == set(WITHOUT)
    assert all(lost not in placement.ring for lost, placement in found.items())
    assert len({placement.placement_id for placement in found.values()}) == len(found)
    assert all(placement.epoch == 0 for placement in found.values())
    verify_files(source, load_role(source).files)


def test_other_devices_have_none(source: Path) -> None:
    assert load(source.parent / "board") == {}


def remove(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    path.write_text(path.read_text().replace("run part_0", "run part_1", 1))


def edit(**fields: Any) -> Callable[[Path], None]:
    return lambda path: reseal(path, **fields)


def exchange(path: Path) -> None:
    """The one in force."""
    path.write_text((path.parents[1] / "placement.json").read_text())


def misname(path: Path) -> None:
    """Sealed, but of pieces that the source does not have."""
    raw = json.loads(path.read_text())
    programs = {
        phase: {name: text.replace("run part_0", "run part_9") for name, text in own.items()}
        for phase, own in raw["programs"].items()
    }
    reseal(path, programs=programs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove, "the file is missing"),
        (damage, "the file is damaged"),
        (exchange, "it is no placement for the loss of board"),
        (edit(plan_id="0" * 64), "it is of another build than build.json"),
        (misname, "'part_9' is not a sub-module of this device"),
    ],
)
def test_what_is_refused(source: Path, change: Callable[[Path], None], message: str) -> None:
    path = source / contingency_file("board")
    change(path)
    with pytest.raises(BundleError) as caught:
        load(source)
    assert message in caught.value.message
    assert str(path) in (caught.value.where or "")
    assert caught.value.hint
