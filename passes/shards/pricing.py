"""Blocks of a graph as a planning problem has them: what of a sub-module devices may share, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partc.config.devices import DeviceConfig
from partc.ir.costs import node_cost
from partc.ir.graph import Graph, ModelInfo, Node, State, Submodule, Weight
from partc.ir.homes import homes
from partc.ir.operators import UPDATE_STATE
from partc.ir.types import BY_SHORT
from partc.ir.workload import Step, largest, workload
from partc.planner.model.problem import Block as Shareable
from partc.planner.model.problem import Problem, Tiling
from passes.profile_submodules import Stored
from passes.shards.blocks import ATTENTIONS, PRODUCTS, SUM_TYPE, Block, find_blocks
from passes.shards.by_rows import has_own_rows

Held = dict[int, Block]
"""Sub-module → its block."""


def with_blocks(
    problem: Problem,
    info: ModelInfo,
    graph: Graph,
    submodules: Sequence[Submodule],
    device: DeviceConfig,
    stored: Stored,
) -> Problem:
    """The problem in which devices may share every block that is a sub-module's only one; O(nodes) per phase.

    The source has sub-module 0 to itself, and so has it a block there.

    Args:
        problem: of the graph.
        info: of the model.
        graph: of the model.
        submodules: of the graph.
        device: the one by whose roofline the time of a sub-module is divided among its nodes.
        stored: bytes of a weight where it lies.
    """
    held = held_blocks(graph, submodules)
    parts = tuple(
        replace(part, block=_shareable(info, held[j], part.memory_bytes, stored)) if j in held else part
        for j, part in enumerate(problem.submodules)
    )
    steps = {step.name: step for step in workload(info)}
    phases = tuple(
        replace(
            phase,
            tilings=tuple(
                _tiling(submodule, held[j], steps[phase.name], device) if j in held else None
                for j, submodule in enumerate(submodules)
            ),
        )
        for phase in problem.phases
    )
    return replace(problem, submodules=parts, phases=phases) if held else problem


def held_blocks(graph: Graph, submodules: Sequence[Submodule]) -> Held:
    """The blocks that lie in one sub-module, which has no other, and is not the first."""
    home = homes(submodules)
    held: dict[int, list[Block]] = {}
    for block in find_blocks(graph)[0]:
        places = {home.get(node) for node in (*block.inside, block.end)}
        if len(places) == 1 and (place := places.pop()):
            held.setdefault(place, []).append(block)
    return {place: blocks[0] for place, blocks in held.items() if len(blocks) == 1}


def _shareable(info: ModelInfo, block: Block, most: float, stored: Stored) -> Shareable:
    """Weights that several sub-modules have in common are in nobody's memory alone, and stay whole."""
    sizes = largest(info, "prefill").sizes
    weights = sum(stored(value) for value in block.divided if isinstance(value, Weight))
    states = sum(value.bytes(sizes) for value in block.divided if isinstance(value, State))
    return Shareable(block.kind, block.units, min(most, weights + states * info.max_requests))


def _tiling(submodule: Submodule, block: Block, step: Step, device: DeviceConfig) -> Tiling:
    seconds = {node: _seconds(node, step, device) for node in submodule.nodes}
    total = sum(seconds.values()) or 1.0
    enter = sum(seconds[node] for node in block.inside if node.op in PRODUCTS)
    own = {*block.inside, block.end}
    summed = block.end.outputs[0]
    return Tiling(
        rows=step.sizes["sequence"],
        activation_bytes=block.end.outputs[0].bytes(step.sizes),
        enter=enter / total,
        leave=seconds[block.end] / total,
        connect=sum(taken for node, taken in seconds.items() if node not in own) / total,
        keys_bytes=_keys_bytes(block, step),
        queries_bytes=_queries_bytes(block, step),
        sum_bytes=0
        if summed.dtype == SUM_TYPE
        else float(summed.elements(step.sizes) * BY_SHORT[SUM_TYPE].bytes),
        by_rows=has_own_rows(summed),
    )


def _seconds(node: Node, step: Step, device: DeviceConfig) -> float:
    cost = node_cost(node, step)
    moving = cost.moved_bytes / device.memory_bandwidth_bytes_per_s
    return max(cost.flops / device.flops_per_s, moving)


def _queries_bytes(block: Block, step: Step) -> float:
    queries = [node.operand(0) for node in block.inside if node.op in ATTENTIONS]
    return sum(value.bytes(step.sizes) for value in queries)


def _keys_bytes(block: Block, step: Step) -> float:
    """Keys and values of the rows of a step: what is new in the caches, or all that an attention reads."""
    updates = [node.operand(1) for node in block.inside if node.op == UPDATE_STATE.name]
    reads = [node.operand(place) for node in block.inside if node.op in ATTENTIONS for place in (1, 2)]
    return sum(value.bytes(step.sizes) for value in updates or reads)
