"""Figures of a plan that a placement carries (`predicted` of placement.json): runners measure patience by them."""

from __future__ import annotations

from partc.format.placement import MOST_FIGURE
from partc.format.plan import Predicted


def placement_figures(predicted: Predicted | None, prompt: float | None) -> dict[str, float]:
    """Seconds of one whole step of each phase (`prefill_s`, `decode_s`) and the tokens of that prefill.

    Args:
        predicted: None without a plan; runners then have nothing to measure patience by.
        prompt: tokens of the prefill that was planned; None for a model without states.
    """
    phases = predicted.phases if predicted else ()
    names = {"step": "prefill"}
    times = {f"{names.get(item.phase, item.phase)}_s": float(item.latency_s) for item in phases}
    found = {**times, "prefill_tokens": prompt} if times and prompt is not None else times
    return {name: min(value, MOST_FIGURE) for name, value in found.items()}
