"""Compiled groups of every family of the list, in uneven shares, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.errors import PlanError
from tests.families.groups import FAMILIES, WHOLE_ROWS, check, check_decoder

pytestmark = [pytest.mark.hf, pytest.mark.ort]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_of_a_family(family: str, tmp_path: Path) -> None:
    cells = check(family, tmp_path)
    assert len(cells) == (3 if family in WHOLE_ROWS else 9)
    assert all(cell.right for cell in cells), [cell for cell in cells if not cell.right]


def test_four_devices_share_attention_beside_the_mlp_in_uneven_parts(tmp_path: Path) -> None:
    """The thin slice: one device has no share, and there are fewer groups of heads than devices."""
    (cell,) = check("phi", tmp_path, ("galaxy",), ((0, 1, 3, 1),))
    assert cell.right, cell


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["galaxy", "sequence-parallel"])
def test_rows_that_have_no_axis_are_not_divided(strategy: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="one axis with the batch"):
        check_decoder("opt", tmp_path, (strategy,), ((3, 2),))
