"""`canonicalize`: bring an exported graph into its shortest equivalent form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partc.ir.edit import drop_dead
from partc.ir.graph import Module
from partc.ir.sizes import SizeInference, assign_sizes
from partc.pipeline.contract import Context, Pass
from passes.rewrites.fold_constants import fold_constants
from passes.rewrites.fold_weights import fold_weights
from passes.rewrites.merge_duplicates import merge_duplicates
from passes.rewrites.narrow_masks import narrow_masks
from passes.rewrites.rebuild_sizes import rebuild_sizes
from passes.rewrites.simplify import simplify
from passes.rewrites.split_sequences import split_sequences

MAX_SWEEPS = 20
"""Exported transformers settle after four or five."""


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Fold constants, fold weights into their references, simplify, merge duplicates, drop what is dead."""

    name: ClassVar[str] = "canonicalize"
    requires: ClassVar[str | None] = "imported"
    ensures: ClassVar[str | None] = "imported"

    max_constant_bytes: int = 65536
    """No constant of more bytes is computed at compile time, unless its operands have as many."""

    def apply(self, module: Module, context: Context) -> bool:
        """Rewrite the graph of `module` until nothing changes."""
        return canonicalize(module, self.max_constant_bytes)


def canonicalize(module: Module, max_constant_bytes: int = 65536) -> bool:
    """Sweep until nothing changes, at most `MAX_SWEEPS` times; True if anything did; O(nodes) a sweep."""
    inference = SizeInference(module.graph, module.info)
    sweeps = 0
    while sweeps < MAX_SWEEPS and _sweep(module, inference, max_constant_bytes):
        sweeps += 1
    return sweeps > 0


def _sweep(module: Module, inference: SizeInference, max_constant_bytes: int) -> bool:
    graph = module.graph
    changed = drop_dead(graph)
    changed |= merge_duplicates(graph)
    inferred = inference.infer(graph)
    while split_sequences(graph, inferred):  # behind one list lie the sizes of the next: one for every layer
        changed, inferred = True, inference.infer(graph)
    changed |= assign_sizes(graph, inferred)
    changed |= fold_constants(graph, inferred, max_constant_bytes)
    changed |= rebuild_sizes(graph, inferred)
    changed |= simplify(graph, inferred)
    changed |= fold_weights(graph, inferred)
    changed |= narrow_masks(graph)
    changed |= drop_dead(graph)
    return changed
