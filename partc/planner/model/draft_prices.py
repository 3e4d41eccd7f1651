"""What a model and its devices make of guesses: whether there are any, and what steps of several tokens cost."""

from __future__ import annotations

from partc.config.devices import DevicesConfig
from partc.format.state_kinds import has_rows_alone
from partc.ir.graph import Module
from partc.pipeline.registry import load_target
from partc.planner.model.problem import Drafts


def drafts_of(module: Module, devices: DevicesConfig) -> Drafts | None:
    """The guesses of a model; None where its requests have several sequences, or cannot be taken back to a token.

    A step of several tokens costs what the slowest device takes for it by one of one token; what computes them one
    after the other, so many times as much.
    """
    info = module.info
    kinds = [state.kind for state in module.graph.states()]
    if (
        not (info.drafts and info.has_states and has_rows_alone(kinds))
        or (info.batch or 1) > 1
        or info.batches
    ):
        return None
    if info.uniform_positions or info.start_tokens or info.placeholder_token is not None:
        return Drafts(info.drafted)
    targets = [load_target(device.target, device.target_options) for device in devices.devices.values()]
    costs = [target.token_costs(module.graph, info) for target in dict.fromkeys(targets)]
    sizes = sorted({size for each in costs for size in each})
    prices = {size: max(each.get(size, float(size)) for each in costs) for size in sizes}
    return Drafts(info.drafted, tuple((size, min(cost, float(size))) for size, cost in prices.items()))
