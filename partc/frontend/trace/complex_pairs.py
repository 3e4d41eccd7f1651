"""Complex numbers as pairs of real ones, while a model is traced: ONNX has none.

Some models turn queries and keys by products of complex numbers (Llama 4, DeepSeek V2). While `complex_as_pairs`
lasts, the functions of torch that lead into and out of the complex numbers give and take a `Pair` in the place of a
complex tensor, and the model's own code goes on with that. Operations that a pair does not have raise AttributeError
or TypeError, which ends the trace: nothing is wrong silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class Pair:
    """A complex tensor as its two parts, both real."""

    def __init__(self, real: torch.Tensor, imaginary: torch.Tensor) -> None:
        """Both of the same shape."""
        self.real, self.imaginary = real, imaginary

    @property
    def shape(self) -> torch.Size:
        """That of each part."""
        return self.real.shape

    @property
    def device(self) -> torch.device:
        """That of both parts."""
        return self.real.device

    def to(self, device: torch.device) -> Pair:
        """The same elsewhere; a type is refused."""
        if not isinstance(device, (torch.device, str)):
            raise TypeError(f"complex numbers as {device}")
        return Pair(self.real.to(device), self.imaginary.to(device))

    def unsqueeze(self, axis: int) -> Pair:
        """An axis of size one more; `axis` may count from behind."""
        return Pair(self.real.unsqueeze(axis), self.imaginary.unsqueeze(axis))

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.real[index], self.imaginary[index])

    def __mul__(self, other: Pair | torch.Tensor | float) -> Pair:
        if not isinstance(other, Pair):
            return Pair(self.real * other, self.imaginary * other)
        return Pair(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )

    __rmul__ = __mul__


def _polar(length: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(length * torch.cos(angle), length * torch.sin(angle))


def _view_as_complex(parts: torch.Tensor) -> Pair:
    return Pair(*parts.unbind(-1))


def _view_as_real(pair: Pair) -> torch.Tensor:
    return torch.stack([pair.real, pair.imaginary], dim=-1)


_FUNCTIONS = {"polar": _polar, "view_as_complex": _view_as_complex, "view_as_real": _view_as_real}


@contextlib.contextmanager
def complex_as_pairs() -> Iterator[None]:
    """Let torch's functions work with pairs until the block ends. Not for several threads at once."""
    before = {name: getattr(torch, name) for name in _FUNCTIONS}
    for name, function in _FUNCTIONS.items():
        setattr(torch, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch, name, function)
