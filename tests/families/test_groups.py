"""Compiled groups of every family of the list, in uneven shares, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.groups import FAMILIES, check

pytestmark = [pytest.mark.hf, pytest.mark.ort]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_of_a_family(family: str, tmp_path: Path) -> None:
    cells = check(family, tmp_path)
    assert len(cells) == 9
    assert all(cell.right for cell in cells), [cell for cell in cells if not cell.right]


@pytest.mark.in_turns(3)
def test_four_devices_share_attention_beside_the_mlp_in_uneven_parts(tmp_path: Path) -> None:
    """The thin slice: one device has no share, and there are fewer groups of heads than devices."""
    (cell,) = check("phi", tmp_path, ("galaxy",), ((0, 1, 3, 1),))
    assert cell.right, cell
