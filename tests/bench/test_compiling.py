"""The line of a build says where an aim is missed."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.compiling import Compiled

FOUND = Compiled(
    model="110M", kind="int4", target="tvm", devices=1, wall_s=12.0, plan_s=1.0, weights_s=3.0, cpu_s=17.0,
    peak_bytes=640_000_000, library_bytes=399_000, load=2.0, first_token_s=0.5, resident_bytes=10**8,
    private_bytes=9 * 10**7,
)  # fmt: skip


def test_aims_that_are_missed_are_said() -> None:
    assert "more than" not in FOUND.line
    assert "1 device: 12.0 s (plan 1.0, weights 3.0; 17.0 s of a core" in FOUND.line
    assert "20.1 s, more than 20 s" in replace(FOUND, wall_s=20.1).line
    assert "1001 kB, more than 1 MB" in replace(FOUND, library_bytes=1_001_000).line


def test_a_model_that_is_cut_has_no_first_token_of_its_own() -> None:
    cut = replace(FOUND, devices=3, first_token_s=None, resident_bytes=None, private_bytes=None)
    assert "3 devices" in cut.line and "first token" not in cut.line
