"""The line through messages of several sizes, and what of a step is a link's."""

from __future__ import annotations

import numpy as np
import pytest

from partc.profiler.links import TOKEN_BYTES, Ring, Sample, idle_s, link_figures
from partc.runtime.client.results import Timings


def ring(first: str, last: str, fixed_s: float, per_byte_s: float) -> Ring:
    sizes = (16 * TOKEN_BYTES, 256 * TOKEN_BYTES, 4096 * TOKEN_BYTES)
    samples = tuple(Sample(size, fixed_s + size * per_byte_s) for size in sizes)
    return Ring((first, last), fixed_s + TOKEN_BYTES * per_byte_s, samples)


def test_each_direction_has_its_bandwidth_and_half_of_the_latency_of_both() -> None:
    # 3 ms there and back, besides 1 ms and 2 ms that a step costs the sources themselves.
    there, back = ring("a", "b", 0.004, 1e-8), ring("b", "a", 0.005, 1e-6)
    alone = {"a": 0.001, "b": 0.002}
    forth = link_figures(there, back, alone)
    assert forth.bandwidth_bytes_per_s == pytest.approx(1e8)
    assert link_figures(back, there, alone).bandwidth_bytes_per_s == pytest.approx(1e6)
    both = (0.003 + TOKEN_BYTES * 1e-8 + 0.003 + TOKEN_BYTES * 1e-6) / 2
    assert forth.latency_s == pytest.approx((both - TOKEN_BYTES * 1e-8) / 2)


def test_noise_never_makes_a_figure_negative() -> None:
    falling = Ring(("a", "b"), 0.001, (Sample(1000, 0.002), Sample(100000, 0.001)))
    figures = link_figures(falling, falling, {"a": 1.0, "b": 1.0})
    assert figures.latency_s == 0.0
    assert figures.bandwidth_bytes_per_s == pytest.approx(1e8)


def test_a_step_without_its_computing() -> None:
    def table(started: list[float], computing: list[float]) -> Timings:
        return Timings(("started_s", "compute_s"), np.array([started, computing]).T)

    timings = {
        "a": table([0.0, 1.0, 3.0], [0.25, 0.5, 0.5]),
        "b": table([9.0, 9.5, 9.9], [0.25, 0.25, 0.25]),
    }
    assert idle_s(timings, "a") == [0.5, 1.25]
