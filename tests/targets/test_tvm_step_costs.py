"""Costs of steps that are expected before there is code are those of the code."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from targets.tvm.kernels.instructions import INSTRUCTION_SETS
from targets.tvm.step_costs import FEW_ROWS


@pytest.mark.parametrize("arch", FEW_ROWS)
def test_few_rows_are_those_of_every_instruction_set_of_an_architecture(arch: str) -> None:
    assert FEW_ROWS[arch] == min(each.few4 for each in INSTRUCTION_SETS if each.arch == arch)
