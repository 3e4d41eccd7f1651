"""Medians and 20th percentiles, and ratios to the first ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.bench.ring.memory import Sizes
from tests.bench.ring.requests import PROMPT
from tests.bench.ring.turns import Measured

FAST = 0.2


class Times(NamedTuple):
    """Seconds of many times of the same thing."""

    median: float
    fast: float
    """The 20th percentile: what it takes while the machine is fast."""

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """The figures of at least one time."""
        return cls(float(np.median(seconds)), float(np.quantile(seconds, FAST)))

    def speed_of(self, other: Times) -> Times:
        """How many times as fast this is as `other`, by both."""
        return Times(other.median / self.median, other.fast / self.fast)


def summary(
    measured: Mapping[str, Measured],
    memory: Mapping[str, Mapping[str, Sizes]],
    ideals: Mapping[str, float],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """All figures of all rings; the first one is the uncut model. `ideals` has the best speeds of a prompt."""
    rings = {name: {**_figures(found), "memory": memory[name]} for name, found in measured.items()}
    first = next(iter(rings.values()))
    for ring in rings.values():
        ring["decode_speed"] = ring["token_s"].speed_of(first["token_s"])._asdict()
        ring["pair_speed"] = ring["pair_s"].speed_of(ring["token_s"])._asdict()
        ring["prompt_speed"] = ring["prompt_s"].speed_of(first["prompt_s"])._asdict()
    for name, ring in rings.items():
        ring["prompt_ideal"] = ideals[name]
    return {**about, "rings": {name: _plain(ring) for name, ring in rings.items()}}


def _figures(found: Measured) -> dict[str, Any]:
    beyond = np.subtract(found.token, found.compute)
    return {
        "tokens": len(found.token),
        "token_s": Times.of(found.token),
        "compute_s": Times.of(found.compute),
        "beyond_s": Times.of([float(seconds) for seconds in beyond]),
        "hop_s": Times.of(found.hop) if found.hop else None,
        "cpu_s": Times.of(found.cpu),
        "pair_s": Times.of(found.pair),
        "prompt_s": Times.of(found.prompt),
    }


def _plain(ring: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value._asdict() if isinstance(value, Times) else value for key, value in ring.items()}


def table(report: Mapping[str, Any]) -> str:
    """The report for people: medians, 20th percentiles in parentheses."""
    lines = [
        f"{report['model']}, {report['quantize']}, {report['cores']} cores, load up to {report['load']:.1f};"
        f" medians over {report['rounds']} rounds (20th percentiles);"
        f" two processes read {report['reading_gain']:.2f}x what one reads"
    ]
    for name, ring in report["rings"].items():
        hop = "" if ring["hop_s"] is None else f"; a hop {_both(ring['hop_s'], 1e6, 0)} us"
        lines += [
            f"  {name}",
            f"    {ring['tokens']} tokens: {_both(ring['token_s'], 1e3, 2)} ms, {_both(ring['decode_speed'])}x the"
            f" speed; CPU {_both(ring['cpu_s'], 1e3, 2)} ms",
            f"    computing {_both(ring['compute_s'], 1e3, 2)} ms, beyond it {_both(ring['beyond_s'], 1e6, 0)} us over"
            f" {len(ring['memory'])} devices{hop}",
            f"    two requests {1 / ring['pair_s']['median']:.1f} tokens/s, {_both(ring['pair_speed'])}x of one;"
            f" prompt of {PROMPT} in {_both(ring['prompt_s'], 1e3, 0)} ms, {_both(ring['prompt_speed'])}x the speed,"
            f" at best {ring['prompt_ideal']:.2f}x",
        ]
        lines += [f"    {_held(device, sizes)}" for device, sizes in ring["memory"].items()]
    return "\n".join(lines)


def _both(times: Mapping[str, float], factor: float = 1.0, digits: int = 2) -> str:
    return f"{times['median'] * factor:.{digits}f} ({times['fast'] * factor:.{digits}f})"


def _held(device: str, sizes: Sizes) -> str:
    share = sizes["share"]
    return (
        f"{device}: {share / 1e6:.0f} MB of weights and caches; resident {sizes['resident'] / 1e6:.0f} MB (anonymous"
        f" {sizes['anonymous'] / 1e6:.0f}), {(sizes['resident'] - 10e6) / share:.2f}x + 10 MB;"
        f" at start {sizes['start_peak'] / 1e6:.0f} MB, {sizes['start_peak'] / share:.2f}x"
    )
