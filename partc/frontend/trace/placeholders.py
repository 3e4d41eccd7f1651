"""Tokens in whose place the features of a picture or of a sound go, as transformers models see them while traced.

A model looks for these tokens, and writes features over their embeddings. It does that by operations whose sizes depend
on values, which no graph of fixed shapes has; but in the end row r of the features goes to placeholder r. While
`Placeholders` is entered, these operations are computed for all tokens instead, and their results are chosen at the
placeholders:

| in the model's code | becomes |
|---|---|
| `embeddings.masked_scatter(mask, features)` | `where(mask, features[rank], embeddings)` |
| `embeddings.index_put(nonzero(mask), features)`, `embeddings[mask] = features` | the same |
| `hidden[mask] + features` | `hidden + features[rank]`, until it is written back to `hidden[mask]` |
| `mask.any()` | True |

`rank` [batch, sequence] is the number of placeholders before each token. Booleans of the trace that are [batch,
sequence], or have an axis more for the features, are taken for masks of placeholders. A picture is part of a prompt:
the same token in an answer is text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from partc.frontend.trace.known_values import is_plain


def placeholders_of(ids: torch.Tensor, position: torch.Tensor, token: int) -> torch.Tensor:
    """Where a step [batch, sequence] has placeholders: `position` i64[batch] is 0 in prompts, and more in answers."""
    return (ids == token) & (position == 0)[:, None]


class NoFeaturesError(Exception):
    """A model never wrote features over its embeddings."""

    def __init__(self) -> None:
        super().__init__(
            "its code puts a picture or a sound among its tokens in a way that partc does not know"
        )


class TextLooksAheadError(Exception):
    """A model lets the text of a prompt see later tokens, not only the rows of a picture."""

    def __init__(self) -> None:
        super().__init__(
            "the text of its prompts looks at later tokens, and partc knows that of pictures alone"
        )


class FeaturesFound(Exception):
    """A model is about to write its features; ends a trace that only counts them."""

    def __init__(self, rows: int) -> None:
        """`rows`: of the features."""
        super().__init__(rows)
        self.rows = rows


class Chosen:
    """Rows of a tensor at placeholders, kept as rows of all tokens [batch, sequence, …]."""

    def __init__(self, rows: torch.Tensor, spread: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.rows, self.spread = rows, spread

    def __add__(self, features: torch.Tensor) -> Chosen:
        return Chosen(self.rows + self.spread(features), self.spread)


class Places(tuple[torch.Tensor, ...]):
    """The places at which a mask holds, as `nonzero(as_tuple=True)` gives them; only the mask is known."""

    mask: torch.Tensor


class Placeholders(TorchFunctionMode):
    """Writes features over the embeddings of placeholders; see the module."""

    def __init__(
        self, rank: torch.Tensor, position: torch.Tensor, kinds: torch.Tensor, *, counts: bool = False
    ) -> None:
        """Take what is known of the tokens.

        Args:
            rank: i64[batch, sequence], placeholders before each token.
            position: i64[batch], tokens of earlier steps.
            kinds: 1 at placeholders and 0 at text; models that compare it with 0 make a mask for the text.
            counts: end at the first features.
        """
        super().__init__()
        self.kinds = kinds
        self.rank = rank
        self.is_prompt = (position == 0)[:, None, None]
        self.counts = counts
        self.rows = 0
        """Rows of the features that were written first; 0: none were."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        ours = self._ours.get(getattr(function, "__name__", ""))
        if ours is not None:
            found = ours(self, *arguments, **(options or {}))
            if found is not NotImplemented:
                return found
        return function(*arguments, **(options or {}))

    def _is_mask(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or is_plain(value) or value.dtype != torch.bool:
            return False
        return value.ndim in (2, 3) and value.shape[:2] == self.rank.shape

    def _spread(self, features: torch.Tensor) -> torch.Tensor:
        """The features [rows, d], or with more axes before, at the tokens that they belong to: [batch, sequence, d]."""
        rows = features.reshape(-1, features.shape[-1])
        self.rows = self.rows or int(rows.shape[0])
        if self.counts:
            raise FeaturesFound(self.rows)
        return rows[self.rank.clamp(0, rows.shape[0] - 1)]

    def _write(self, tensor: torch.Tensor, mask: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return torch.where(self._places(mask), self._spread(features).to(tensor.dtype), tensor)

    def _places(self, mask: torch.Tensor) -> torch.Tensor:
        """The placeholders of a prompt, [batch, sequence, 1]."""
        return (mask if mask.ndim == 3 else mask[..., None])[..., :1] & self.is_prompt

    def _masked_scatter(self, tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
        return self._write(tensor, mask, source) if self._is_mask(mask) else NotImplemented

    def _nonzero(self, mask: torch.Tensor, *, as_tuple: bool = False) -> Any:
        if not as_tuple or not self._is_mask(mask):
            return NotImplemented
        places = Places()
        places.mask = mask
        return places

    def _index_put(
        self, tensor: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
    ) -> Any:
        if not isinstance(indices, Places) or accumulate:
            return NotImplemented
        return self._write(tensor, indices.mask, values)

    def _equals(self, tensor: torch.Tensor, other: Any) -> Any:
        if tensor is self.kinds and isinstance(other, int) and other == 0:
            raise TextLooksAheadError
        return NotImplemented

    def _any(self, mask: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return True if self._is_mask(mask) and not arguments and not options else NotImplemented

    def _getitem(self, tensor: torch.Tensor, index: Any) -> Any:
        mask = _rows_of(index)
        return Chosen(tensor, self._spread) if self._is_mask(mask) and tensor.ndim == 3 else NotImplemented

    def _setitem(self, tensor: torch.Tensor, index: Any, value: Any) -> Any:
        mask = _rows_of(index)
        if not self._is_mask(mask) or tensor.ndim != 3:
            return NotImplemented
        if isinstance(value, Chosen):
            tensor.copy_(torch.where(self._places(mask), value.rows, tensor))
        elif isinstance(value, torch.Tensor) and value.ndim:
            tensor.copy_(self._write(tensor, mask, value))
        else:
            return NotImplemented
        return None

    _ours: ClassVar[dict[str, Callable[..., Any]]] = {
        "masked_scatter": _masked_scatter,
        "nonzero": _nonzero,
        "index_put": _index_put,
        "any": _any,
        "__eq__": _equals,
        "eq": _equals,
        "__getitem__": _getitem,
        "__setitem__": _setitem,
    }
    """Name of a function of torch → what is done instead where it is given a mask of placeholders."""


def _rows_of(index: Any) -> Any:
    """The mask in `tensor[mask]` and `tensor[mask, :]`."""
    match index:
        case (mask, slice(start=None, stop=None, step=None)):
            return mask
        case _:
            return index
