"""The same shapes in transformers on the same GPU, in float16: what people would otherwise run there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from tests.gpu.report import Timed


def timed(name: str, config: dict[str, object], lengths: Sequence[int]) -> Timed:
    """Times of a Llama with random weights, a step at a time, each waited for as in `Steps`."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    fields = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**fields)).to(torch.float16).eval()

    @torch.no_grad()
    def step(rows: int, cache: object) -> None:
        ids = torch.randint(3, 300, (1, rows), device="cuda")
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()

    def tokens(before: int, count: int) -> float:
        cache = DynamicCache()
        step(before, cache)
        return float(np.median([_seconds(lambda: step(1, cache)) for _ in range(count)][20:])) * 1e3

    def prompt(rows: int) -> float:
        return min(_seconds(lambda: step(rows, DynamicCache())) for _ in range(4)) * 1e3

    sizes = sum(parameter.nbytes for parameter in model.parameters())
    return Timed(name, sizes, tokens(16, 100), tokens(900, 100), {rows: prompt(rows) for rows in lengths})


def _seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
