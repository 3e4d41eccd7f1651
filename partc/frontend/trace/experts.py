"""Experts whose modules choose rows by values: as batched products, which one program computes for all choices.

Most families leave it to transformers how experts are computed, and take its batched products. These two kinds are
written out in modules of their own, which are known by what they hold:

- experts some of which return their input as it is (`identity_expert`);
- lists of weights (`weight` [experts, out, in]) whose rows a gate has sorted by expert. Here the gate leaves them in
  their order, token by token, and tells the expert of each row where it would tell the number of rows of each expert.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

_WITH_IDENTITY = {"identity_expert", "gate_up_proj", "down_proj", "num_routed_experts", "act_fn"}
_LIST = {"weight", "num_experts", "input_size", "output_size"}
_GATE = {"layer", "num_experts", "input_size", "top_k"}


def replace_experts(network: torch.nn.Module) -> None:
    """Let such modules of a network compute batched products from now on."""
    for module in network.modules():
        held = {*vars(module), *module._modules, *module._parameters}
        if held >= _WITH_IDENTITY:
            module.forward = partial(_compute_some, module)
        elif held >= _LIST and module.weight.ndim == 3:
            module.forward = partial(_compute_list, module)
        elif held >= _GATE:
            module.forward = partial(_choose, module)


def _compute_some(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Rows [rows, width] through the experts of `top_k_index` [rows, chosen]; those behind the last change nothing."""
    computed = top_k_index < module.num_routed_experts
    kept = torch.where(computed, 0.0, top_k_weights).sum(-1, keepdim=True) * hidden_states
    if module.gate_up_proj is None:
        return kept.to(hidden_states.dtype)
    chosen = top_k_index.clamp(max=module.num_routed_experts - 1).reshape(-1)
    rows = hidden_states.repeat_interleave(top_k_index.shape[-1], dim=0)
    gate, up = _products(rows, module.gate_up_proj, chosen).chunk(2, dim=-1)
    out = _products(module.act_fn(gate) * up, module.down_proj, chosen)
    weighted = out * torch.where(computed, top_k_weights, 0.0).reshape(-1, 1)
    return (kept + weighted.reshape(*top_k_index.shape, -1).sum(1)).to(hidden_states.dtype)


def _compute_list(module: Any, inputs: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    """Rows [rows, in] through the expert of each."""
    return _products(inputs, module.weight, experts)


def _products(rows: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    return torch.bmm(weights[experts], rows[..., None]).squeeze(-1)


def _choose(
    module: Any, hidden_states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places of all chosen pairs, their tokens, their weights, their experts, and the logits of the gate."""
    logits = module.layer(hidden_states).float()
    best, experts = logits.topk(module.top_k, dim=1)
    weights = torch.softmax(best, dim=1).type_as(hidden_states)
    places = torch.arange(experts.shape[0] * module.top_k)
    tokens = places.div(module.top_k, rounding_mode="floor")
    return places, tokens, weights.flatten(), experts.flatten(), logits
