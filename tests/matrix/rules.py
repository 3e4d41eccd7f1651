"""What cannot be combined, and why: the one list of it, for the cells and for docs/combinations.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.matrix.axes import AXES, Cell


@dataclass(frozen=True)
class Rule:
    """Values that do not go together."""

    when: Mapping[str, tuple[str, ...]]
    """Axis → its values."""
    kind: Literal["meaningless", "not yet"]
    reason: str
    instead: str
    says: str
    """What `partc compile` says, in part; empty: there is nothing that could be asked for."""

    def holds(self, cell: Cell) -> bool:
        """Whether a cell is one of these."""
        return all(cell[axis] in values for axis, values in self.when.items())


RULES = (
    Rule(
        {"split": ("one",), "life": ("killed", "lost", "moved")},
        "meaningless",
        "the only device is the source, whose loss ends its requests anyway",
        "two devices",
        "",
    ),
    Rule(
        {"model": ("encoder",), "cache": ("int8",)},
        "meaningless",
        "the model keeps nothing of earlier steps",
        "`quantize: int8` for its weights",
        "there is no cache to quantise",
    ),
    Rule(
        {"target": ("ort",), "cache": ("int8",)},
        "not yet",
        "ONNX Runtime has no attention over caches in 8 bits",
        "`target: tvm`",
        "the ort target has no code for partc.QuantizeRows",
    ),
    Rule(
        {"model": ("source",), "target": ("tvm",), "split": ("group",)},
        "not yet",
        "what T5 adds to the scores of its source is made in the first block and read in all",
        "`target: ort`, or one device a stage",
        "adds to the scores of a source, which the tvm target cannot fill up",
    ),
    Rule(
        {"split": ("group",), "life": ("moved",)},
        "not yet",
        "what a share of a block reads lies on its device alone",
        "`survive: one`; the ring re-forms its stages and returns to the plan by itself",
        "`overlap` is for stages of one",
    ),
)


def rule_of(cell: Cell) -> Rule | None:
    """The first rule that a cell falls under."""
    return next((rule for rule in RULES if rule.holds(cell)), None)


def cell_of(rule: Rule) -> Cell:
    """A cell that falls under a rule and under no other, the first by the order of the axes."""
    plain = {axis: next(iter(values)) for axis, values in AXES.items()} | {"split": "chain"}
    return {**plain, **{axis: values[0] for axis, values in rule.when.items()}}
