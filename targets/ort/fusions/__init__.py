"""Named fusions of the onnxruntime target; each can be turned off (`--disable NAME`), the results stay.

`grouped-attention` works on the attentions of the model, before they are lowered; the others on the lowered graph, in
the order of the table. Providers leave out what is slow on them (`targets.ort.providers`).

Not here, because they were measured (onnxruntime 1.31, CPU, one thread; speed against what they would replace):

| fusion | a token | a prompt |
| --- | --- | --- |
| SimplifiedLayerNormalization for RMSNormalization: the same kernel | 1.0 | 1.0 |
| BiasGelu for Add and Gelu | 1.0 | 0.75 |
| FastGelu for Add and Gelu | 1.0-1.2 | 0.95 |
| MultiHeadAttention for Attention in encoders, 32 to 512 rows | | 0.6-1.05 |
| gate and up in one product with a Split behind, 4 bits, 8 bits and float32 | 0.93-1.05 | 0.97-1.02 |
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from partc.errors import UserError
from partc.ir.edit import drop_dead
from partc.ir.graph import Graph
from targets.ort.fusions.activation import fuse_activation
from targets.ort.fusions.bias import fuse_bias
from targets.ort.fusions.grouped_attention import fuse_grouped_attention
from targets.ort.fusions.pack_projections import pack_projections
from targets.ort.fusions.rotary_in_attention import fuse_rotary_in_attention
from targets.ort.fusions.skip_normalization import fuse_skip_normalization

GROUPED_ATTENTION = "grouped-attention"
FUSIONS: dict[str, Callable[[Graph], int]] = {
    GROUPED_ATTENTION: fuse_grouped_attention,
    "bias": fuse_bias,
    "rotary-in-attention": fuse_rotary_in_attention,
    "pack-projections": pack_projections,  # after bias and rotary, which stand between a product and its attention
    "activation": fuse_activation,
    "skip-normalization": fuse_skip_normalization,
}
"""Name → the function that fuses in place and counts, in the order of trial."""


def check_names(names: Collection[str], where: str) -> None:
    """Raises UserError for a name that is none of the fusions; its hint lists them."""
    for name in sorted(set(names) - FUSIONS.keys()):
        raise UserError(f"there is no fusion {name!r}", where=where, hint=f"fusions: {', '.join(FUSIONS)}")


def fuse_lowered(graph: Graph, wanted: Collection[str]) -> None:
    """Apply those of `wanted` that work on the lowered graph, in place."""
    for name, fuse in FUSIONS.items():
        if name in wanted and name != GROUPED_ATTENTION:
            fuse(graph)
            drop_dead(graph)
