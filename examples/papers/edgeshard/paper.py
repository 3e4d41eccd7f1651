"""The figures that the paper prints (arXiv 2405.14371, second version, section V), as data."""

from __future__ import annotations

from collections.abc import Mapping

MODELS: Mapping[str, str] = {
    "llama-2-7b": "Llama-2-7B",
    "llama-2-13b": "Llama-2-13B",
    "llama-2-70b": "Llama-2-70B",
}
"""Name of the model.yaml -> how people call it."""

Cell = tuple[float, float] | None
"""Milliseconds per token and tokens per second; None: out of memory."""

_EDGESHARD: Mapping[str, Cell] = {
    "llama-2-7b": (75.88, 52.45),
    "llama-2-13b": (173.43, 10.45),
    "llama-2-70b": (3086.43, 1.25),
}

TABLE_IV: Mapping[str, Mapping[str, Cell]] = {
    "Edge-Solo": {"llama-2-7b": (140.34, 24.36), "llama-2-13b": None, "llama-2-70b": None},
    "Cloud-Edge-Even": {"llama-2-7b": (227.35, 7.56), "llama-2-13b": (319.44, 4.68), "llama-2-70b": None},
    "Cloud-Edge-Opt": {"llama-2-7b": (140.34, 24.36), "llama-2-13b": (243.45, 4.74), "llama-2-70b": None},
    "EdgeShard, as published": _EDGESHARD,
    "partc, optimal": _EDGESHARD,  # the paper's best stands beside ours
}
"""Method -> model -> cell."""

FIGURE_11: Mapping[str, Mapping[str, float | None]] = {
    "Cloud-Edge-Even": {"llama-2-7b": 0.36, "llama-2-13b": 1.69},
    "Cloud-Edge-Opt": {"llama-2-7b": 0.0, "llama-2-13b": 1.89},
    "EdgeShard, as published": {"llama-2-7b": 6.96, "llama-2-13b": 5.21},
    "partc, optimal": {"llama-2-7b": 6.96, "llama-2-13b": 5.21},
}
"""Method -> model -> tokens per second that no-bubbles gains over bubbles (section V-F)."""
