"""Graphs whose blocks are divided among several devices, as `shard-blocks` does it, and a wrong division."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partc.ir.graph import Module
from partc.ir.operators import ATTENTION
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.shard_blocks import shard_blocks

SHARES = ((3, 2), (2, 3, 2), (0, 1, 3, 1))
"""Weights of the shares of 2, 3 and 4 devices: uneven, one with nothing. Four have more devices than most tiny models
have groups of heads."""


def divided(weights: Sequence[int]) -> Callable[[Module], None]:
    """What divides the attention and the MLP of every layer of a decoder."""

    def apply(module: Module) -> None:
        layers = sum(node.op == ATTENTION.name for node in module.graph.nodes)
        assert shard_blocks(module.graph, weights) == 2 * layers
        run_passes(module, load_passes("infer-sizes"))

    return apply


def with_a_share_twice(module: Module) -> None:
    """Divides the blocks and adds the last share of the first sum in place of the one before."""
    divided((1, 1))(module)
    total = next(
        node
        for node in module.graph.nodes
        if node.op == "Add" and all(f".share{n}" in node.operand(n).name for n in (0, 1))
    )
    total.inputs = [total.inputs[1], total.inputs[1]]
