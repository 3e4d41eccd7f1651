"""The precision that model.yaml asks for: of the weights (`weight_formats.py`), and of the caches."""

from __future__ import annotations

from dataclasses import dataclass

from partc.ir.weight_formats import FORMATS

ANEW = tuple(FORMATS)
"""Precisions in model.yaml to which floats are rounded."""
BLOCKWISE = frozenset(each.name for each in FORMATS.values() if each.has_blocks)
"""Precisions that have a scale for each block of weights."""
NONE = "none"
STORED = "stored"
"""The precision that a quantised checkpoint has, where a format holds its integers as they are."""


@dataclass(frozen=True)
class Quantization:
    """Precision of the weights, each of the first three a name of `FORMATS`, `stored` or `none`, and of the caches."""

    weights: str = NONE
    """The precision of every matrix that activations are multiplied with, but the head."""
    head: str = NONE
    """The precision of the product that makes the logits."""
    embeddings: str = NONE
    """The precision of the table of tokens."""
    block: int = 32
    """Weights of a row that share a scale, in formats with blocks."""
    otherwise: str = NONE
    """The precision of what should be `stored` and is not."""
    cache: str = NONE
    """The precision of the caches of keys and values: `int8`, with a scale for every token and head, or `none`."""

    @property
    def has_weights(self) -> bool:
        """Whether any weights are quantised."""
        return {self.weights, self.head, self.embeddings} != {NONE}

    @property
    def only_stored(self) -> bool:
        """Whether nothing is quantised anew."""
        return {self.weights, self.head, self.embeddings, self.otherwise} <= {
            STORED,
            NONE,
        } and self.has_weights

    @property
    def has_blocks(self) -> bool:
        """Whether any weights have a scale for each block."""
        return any(name in BLOCKWISE for name in (self.weights, self.head, self.embeddings, self.otherwise))

    @property
    def text(self) -> str:
        """For tables and messages: `int4`, `int4, head int8, cache int8`."""
        parts = [self.weights, *(f"{name} {own}" for name, own in self._exceptions().items())]
        return ", ".join([*parts, f"block {self.block}"] if self._has_other_block() else parts)

    def _exceptions(self) -> dict[str, str]:
        own = {"head": self.head, "embeddings": self.embeddings}
        found = {name: value for name, value in own.items() if value != self.weights}
        if self.otherwise != NONE:
            found["otherwise"] = self.otherwise
        return found if self.cache == NONE else {**found, "cache": self.cache}

    def _has_other_block(self) -> bool:
        return self.block != 32 and self.has_blocks


AS_STORED = Quantization(STORED, STORED, STORED)
"""What holds for a quantised checkpoint where model.yaml says nothing."""
