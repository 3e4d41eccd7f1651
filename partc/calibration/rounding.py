"""Rounding of a matrix to 4 bits in which later columns make up for the errors of earlier ones.

GPTQ (Frantar et al. 2023, algorithm 1): for inputs x the output of a matrix W is off by (W - W')x, whose square is
measured by H = X Xᵀ over many inputs. Columns are rounded from left to right; the error of a column, times its row of
the inverse of H, is taken from those that are still to be rounded. With the Cholesky factor U of that inverse
(H⁻¹ = Uᵀ U) all rows that are needed are those of U. As the paper does, columns are worked on in steps, and what lies
behind a step is corrected once for it; H is damped by a hundredth of its mean diagonal.

Ours differs in the scale of a block: the best of some by the squared error that H's diagonal measures, with the
fitted factor of `partc.ir.weight_formats`, chosen when the first column of the block is reached.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_STEP = 128
"""Columns that are worked on at a time; a multiple of every block."""
_DAMPINGS = (0.01, 0.1, 1.0)
"""Parts of H's mean diagonal that are added to it, until it can be inverted."""
_LEAST, _MOST = -8, 7
_STEPS = (-8.0, -7.0, -7.5, -8.5, -9.0, 8.0, -6.5, 7.0, 7.5, -9.5, 9.0)
"""The largest weight of a block in units of its scale: those that are tried."""


class Rounded(NamedTuple):
    """A matrix [N, K] in 4 bits: values · scales."""

    values: Tensor
    """i8[N, K], -8 … 7."""
    scales: Tensor
    """f32[N, K / block], numbers that float16 has."""

    def matrix(self) -> Tensor:
        """The floats that it stands for, f32[N, K]."""
        block = self.values.shape[1] // self.scales.shape[1]
        return self.values.float() * self.scales.repeat_interleave(block, dim=1)


def rounded(weight: Tensor, gram: Tensor, block: int, dtype: torch.dtype = torch.float32) -> Rounded:
    """Round a matrix so that it does to inputs like those measured what it did before.

    Args:
        weight: f32[N, K], finite.
        gram: f32[K, K], the sum of x xᵀ over inputs x; zeros: nothing is known of them.
        block: weights of a row that share a scale; divides K and 128.
        dtype: the type in which scales are stored; float16 has them, too.

    O(N K² + K³).
    """
    rows, columns = weight.shape
    importance = gram.diagonal()
    importance = (
        torch.where(importance > 0, importance, importance.mean()) if importance.any() else importance + 1
    )
    upper = _inverse_factor(gram)
    left = weight.clone()
    values = torch.empty(rows, columns, dtype=torch.int8)
    scales = torch.empty(rows, columns // block)
    for first in range(0, columns, _STEP):
        last = min(first + _STEP, columns)
        part, errors = left[:, first:last], torch.empty(rows, last - first)
        for at in range(first, last):
            here = at - first
            if at % block == 0:
                scale = _scales(part[:, here : here + block], importance[at : at + block], dtype)
                scales[:, at // block] = scale
            found = _nearest(part[:, here], scale)
            values[:, at] = found.to(torch.int8)
            errors[:, here] = (part[:, here] - found * scale) / upper[at, at]
            part[:, here:] -= errors[:, here, None] * upper[at, at:last]
        left[:, last:] -= errors @ upper[first:last, last:]
    return Rounded(values, scales)


def _inverse_factor(gram: Tensor) -> Tensor:
    """U, upper triangular, with Uᵀ U the inverse of the damped products; the identity where they are all zero."""
    size, mean = len(gram), float(gram.diagonal().mean())
    if mean <= 0:
        return torch.eye(size)
    for damping in _DAMPINGS:
        factor, failed = torch.linalg.cholesky_ex(gram + torch.eye(size) * (damping * mean))
        upper: Tensor
        upper, failed_again = torch.linalg.cholesky_ex(torch.cholesky_inverse(factor), upper=True)
        if not failed and not failed_again:
            return upper
    return torch.eye(size)


def _scales(blocks: Tensor, importance: Tensor, dtype: torch.dtype) -> Tensor:
    """The scale of each row of a block [N, block], of which column k counts `importance[k]`."""
    high, low = blocks.amax(1), blocks.amin(1)
    extreme = torch.where(high > -low, high, low)
    best, least = torch.zeros_like(extreme), torch.full_like(extreme, torch.inf)
    for step in _STEPS:
        values = _nearest(blocks, (extreme / step)[:, None])
        weights = (values * values * importance).sum(1)
        fitted = (blocks * values * importance).sum(1) / weights.clamp_min(torch.finfo(torch.float32).tiny)
        fitted = fitted.half().to(dtype).float()
        error = ((blocks - values * fitted[:, None]).square() * importance).sum(1)
        best, least = torch.where(error < least, fitted, best), torch.minimum(error, least)
    return best


def _nearest(numbers: Tensor, scale: Tensor) -> Tensor:
    """Whole numbers of steps, within 4 bits; 0 where the step is none."""
    steps = torch.where(scale == 0, torch.zeros_like(numbers), numbers / torch.where(scale == 0, 1, scale))
    return steps.round().clamp(_LEAST, _MOST)
