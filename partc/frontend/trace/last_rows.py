"""Logits of one token a sequence: those behind its last valid one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from transformers import PreTrainedModel


@contextlib.contextmanager
def last_rows_only(network: PreTrainedModel, length: torch.Tensor) -> Iterator[None]:
    """Let the output head see the last valid row of each sequence alone: logits are [batch, 1, vocabulary]."""
    head = network.get_output_embeddings()
    if head is None:
        yield
        return

    def gather(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = arguments[0]
        rows = (length - 1)[:, None, None].expand(-1, 1, hidden.shape[-1])
        return (torch.gather(hidden, 1, rows), *arguments[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()
