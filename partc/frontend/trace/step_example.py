"""Inputs with which a model that keeps a cache is traced: those that every step brings, whatever the model reads."""

from __future__ import annotations

from typing import Any

import torch


def step_example(
    max_batch: int, max_sequence: int, least: int = 1
) -> tuple[dict[str, Any], dict[str, dict[int, Any]]]:
    """Inputs of sizes that no model gives a meaning of its own, and which of their sizes may change.

    Args:
        max_batch: sequences of a request at most; a trace allows at least 4,096.
        max_sequence: rows of a cache.
        least: tokens of the shortest step that the model is traced for.
    """
    batch = torch.export.Dim("batch", min=1, max=max(4096, max_batch))
    sequence = torch.export.Dim("sequence", min=least, max=max_sequence)
    arguments: dict[str, Any] = {
        "input_ids": torch.zeros(3, 7, dtype=torch.int64),
        "position": torch.zeros(3, dtype=torch.int64),
        "length": torch.ones(3, dtype=torch.int64),
        "index": torch.arange(7),
        "past": torch.zeros(5, dtype=torch.int64),
    }
    dynamic: dict[str, dict[int, Any]] = {
        "input_ids": {0: batch, 1: sequence},
        "position": {0: batch},
        "length": {0: batch},
        "index": {0: sequence},
        "past": {0: torch.export.Dim("past", min=0, max=max_sequence)},
    }
    return arguments, dynamic
