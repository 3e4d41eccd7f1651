"""What a run on a GPU found, as tables for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """A model whose numbers are known."""

    name: str
    same: int
    """Tokens that are equal."""
    tokens: int
    error: float
    """Largest difference of a logit over the largest logit."""

    @property
    def is_right(self) -> bool:
        """Whether every token is equal."""
        return self.same == self.tokens


@dataclass(frozen=True)
class Timed:
    """A model whose times were taken."""

    name: str
    weight_bytes: int
    token_ms: float
    """Median, behind 16 tokens."""
    far_ms: float
    """Median, behind 900 tokens."""
    prompt_ms: Mapping[int, float]
    """Rows → least time."""


def write_report(device: str, found: Sequence[Found], timed: Sequence[Timed]) -> str:
    """Two tables."""
    lines = [
        f"Device: {device}",
        "",
        "| model | tokens equal | largest relative error of a logit |",
        "|---|---|---|",
    ]
    lines += [f"| {one.name} | {one.same} of {one.tokens} | {one.error:.1e} |" for one in found]
    if timed:
        lengths = list(timed[0].prompt_ms)
        heads = " | ".join(f"prompt of {length}, ms" for length in lengths)
        lines += ["", f"| model | weights, MB | token, ms | GB/s | token behind 900, ms | {heads} |"]
        lines += ["|" + "---|" * (5 + len(lengths))]
        for one in timed:
            rate = one.weight_bytes / one.token_ms / 1e6
            cells = " | ".join(f"{one.prompt_ms[length]:.2f}" for length in lengths)
            lines.append(
                f"| {one.name} | {one.weight_bytes / 1e6:.0f} | {one.token_ms:.3f} | {rate:.0f} "
                f"| {one.far_ms:.3f} | {cells} |"
            )
    return "\n".join(lines) + "\n"
