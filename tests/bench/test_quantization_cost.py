"""The table of the cost of quantisation: a figure without a meaning is a dash."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from partc.verifier.report import Cost
from tests.bench.quantization_cost import print_table

FIXED = {"target": "ort", "weights_bytes": 0}


def test_a_figure_that_means_nothing_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    costs = [
        Cost("none", "none", "none", 32, "book.txt", 8, 1.0, 0.0, 7.5, 7.5),
        Cost("int4", "int4", "int4", 32, "book.txt", 8, 0.5, 0.25, None, 7.5),
        Cost("int8", "int8", "int8", 32, "book.txt"),
    ]
    print_table([{"precision": f"p{n}", **FIXED, **asdict(cost)} for n, cost in enumerate(costs)])
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[-3:] for line in lines if line.strip().startswith("p")}
    assert rows["p0"] == ["100.00%", "0", "7.5000"]
    assert rows["p1"] == ["50.00%", "0.25", "-"]
    assert rows["p2"] == ["-", "-", "-"]
    assert lines[-1] == "of the original: 7.5000"
    print_table([{"precision": "p", **FIXED, **asdict(costs[2])}])
    assert "of the original: -" in capsys.readouterr().out
