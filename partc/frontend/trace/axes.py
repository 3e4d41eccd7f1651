"""Rotary positions in several axes, for models that place the rows of a picture in time, height and width.

Such a model computes positions from a whole prompt, by loops over its tokens (`get_rope_index`). They follow from two
things: the positions inside of a picture, and how far the text goes on behind it. Both depend on the picture's size
alone, so the model is asked once, about a prompt of our own; a second one tells whether the answer holds for others.

With r placeholders before a token at place p of its sequence, n of them a picture, its position in axis a is
p - r + advance · (r // n), and at a placeholder inside[a, r mod n] more.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from partc.frontend.trace.media import Media

_BEFORE, _BEHIND = (3, 5), 4
"""Tokens of text before the picture in the two prompts, and behind it."""


class UnknownPositionsError(Exception):
    """The positions of a prompt do not follow the rule of the module."""

    def __init__(self) -> None:
        super().__init__("it computes positions of pictures in a way that partc does not know")


@dataclass(frozen=True)
class Axes:
    """The positions of one picture."""

    inside: torch.Tensor
    """i64[axes, rows]: of its rows, from where it begins."""
    advance: int
    """Positions that it takes in the text."""

    def positions(
        self, place: torch.Tensor, rank: torch.Tensor, is_placeholder: torch.Tensor
    ) -> torch.Tensor:
        """Positions i64[axes, batch, sequence] of tokens; all of them are [batch, sequence]."""
        rows = self.inside.shape[1]
        text = place - rank + self.advance * torch.div(rank, rows, rounding_mode="floor")
        within = self.inside[:, torch.remainder(rank, rows)] * is_placeholder
        return text[None] + within


def has_axes(network: torch.nn.Module) -> bool:
    """Whether the model has positions in several axes."""
    return _rule_of(network) is not None


def ask_axes(network: torch.nn.Module, media: Media) -> Axes | None:
    """The positions of a picture, whose features are counted; None where the model has positions in one axis.

    Raises:
        UnknownPositionsError: they follow another rule.
    """
    ask = _rule_of(network)
    if ask is None:
        return None
    with _disable_current_modes():
        first, second = (_answer(ask, network, media, before) for before in _BEFORE)
    if first.advance != second.advance or not torch.equal(first.inside, second.inside):
        raise UnknownPositionsError
    return first


def _rule_of(network: torch.nn.Module) -> Any:
    """The model's own computation of positions; None where it has none."""
    return next(
        (found for part in network.modules() if (found := getattr(part, "get_rope_index", None))), None
    )


def _answer(ask: Any, network: Any, media: Media, before: int) -> Axes:
    """The positions of the picture in a prompt with so many tokens before it."""
    token, rows = media.token, media.rows
    start = getattr(network.config, "vision_start_token_id", None)
    text = [0] * (before - 1) + [0 if start is None else start]
    ids = torch.tensor([[*text, *[token] * rows, *[0] * _BEHIND]])
    known = {
        "input_ids": ids,
        "mm_token_type_ids": (ids == token).to(torch.int64),
        "attention_mask": torch.ones_like(ids),
        **media.facts,
    }
    accepted = inspect.signature(ask).parameters
    found = ask(**{name: value for name, value in known.items() if name in accepted})[0][:, 0]
    count = torch.arange(ids.shape[1])
    inside = found[:, before : before + rows] - before
    behind = found[:, before + rows :]
    advance = int(behind[0, 0]) - before
    as_text = torch.equal(found[:, :before], count[:before].expand(len(found), -1))
    goes_on = torch.equal(behind, (before + advance + count[:_BEHIND]).expand(len(found), -1))
    if not (as_text and goes_on):
        raise UnknownPositionsError
    return Axes(inside, advance)
