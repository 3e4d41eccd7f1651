"""Experts as batched products are those that transformers computes one by one."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from partc.frontend.trace.experts import replace_experts
from tests.families.tiny import tiny_config, tiny_model

pytestmark = pytest.mark.hf

FAMILIES = {"longcat_flash": "identity_expert", "jetmoe": "output_linear"}
"""Family → what the module of its experts holds."""


def _logits(network: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = network(input_ids=torch.arange(3, 40)[None], use_cache=False).logits
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_are_the_same(family: str) -> None:
    network = tiny_model(tiny_config(family))
    before = _logits(network)
    replace_experts(network)
    assert (_logits(network) - before).abs().max() < 1e-5 * before.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_other_experts_change_them(family: str) -> None:
    network = tiny_model(tiny_config(family))
    before = _logits(network)
    replace_experts(network)
    for module in network.modules():
        if hasattr(module, "identity_expert"):
            module.num_routed_experts -= 1  # the last that computes returns its input
        elif hasattr(module, "output_linear"):
            module.output_linear.weight.data = module.output_linear.weight.roll(1, 0)
    assert (_logits(network) - before).abs().max() > 1e-2 * before.abs().max()
