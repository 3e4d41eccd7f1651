"""The figures that the paper prints (arXiv 2405.17245, sections I and IV), as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A row of Table IV, with its memory by Table I."""

    name: str
    layers: int
    heads: int
    hidden: int
    memory_bytes: float
    """Table I: two bytes for each parameter, as its five rows have it."""


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("DistilBert", 6, 12, 768, 130e6),
        Model("Bert-L", 24, 16, 1024, 680e6),
        Model("GPT2-L", 36, 20, 1280, 1.6e9),
        Model("OPT-L", 24, 16, 2048, 2.6e9),
        Model("OPT-XL", 32, 32, 2560, 5.4e9),
    )
}

TABLE_I: Mapping[str, float] = {"DistilBert": 0.37, "Bert-L": 2.43}
"""Model → seconds on one Nano-M at length 30; the others are out of memory."""
TABLE_I_LENGTH = 30

FREQUENCY_MHZ: Mapping[str, float] = {"s": 403, "m": 825, "l": 1470}
"""Table II: Nano-S, -M and -L."""
ENVIRONMENTS: Mapping[str, str] = {"A": "mm", "B": "mmm", "C": "mmmm", "D": "lm", "E": "ls", "F": "lms"}
"""Table III."""
BUDGETS: Mapping[str, float] = {"s": 0.7e9, "m": 1.2e9, "l": 1.5e9}
"""Bytes, of D to F; a Nano-M of A to C has 1.5 GB."""
EQUAL_BUDGET = 1.5e9

LENGTH = 284
MBIT = 125.0

Cell = float | None
"""Galaxy's speed-up; None: the other method is out of memory."""

TABLE_IV: Mapping[tuple[str, str], tuple[Cell, Cell] | None] = {
    ("DistilBert", "A"): (1.37, 1.08),
    ("Bert-L", "A"): (1.36, 1.09),
    ("Bert-L", "B"): (1.38, 1.11),
    ("GPT2-L", "A"): (1.31, None),
    ("GPT2-L", "B"): (1.46, None),
    ("OPT-L", "A"): (1.26, None),
    ("OPT-L", "B"): (1.40, None),
    ("OPT-L", "C"): (1.43, None),
    ("OPT-XL", "A"): None,
    ("OPT-XL", "B"): None,
    ("OPT-XL", "C"): (1.28, None),
}
"""(Model, environment) → speed-up over Megatron-LM and over sequence parallelism; None: Galaxy itself has no plan."""

STRONG: Mapping[str, float] = {"GPT2-L": 3.05, "OPT-XL": 3.24}
"""Fig. 11, section IV-D: 384 rows, four Nano-M at 1000 Mbit/s, one layer; over one device."""
WEAK: Mapping[str, float] = {"GPT2-L": 0.81, "OPT-XL": 0.86}
"""Fig. 10: 96 rows for each device, part of linear scaling with four."""
SCALING_MBIT = 1000.0
STRONG_LENGTH = 384
WEAK_LENGTH = 96
FIG_8 = (1.04, 1.45)
"""Section IV-B: least and most speed-up over all bandwidths; the text names none of the five, nor a bar."""
FIG_9 = (1.3, 2.5)
"""Section IV-C: least and most speed-up over all heterogeneous environments; the bars have no numbers."""
