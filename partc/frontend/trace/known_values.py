"""Values that are known when a model is traced: they are computed then, for real.

Encoders of pictures ask for sizes as tensors (grids, masks, lengths of windows), and cut, loop and branch by their
values. These depend on the size of a picture alone, which is fixed: they are plain tensors. While `KnownValues` is
entered, a function of torch that is given plain tensors only, or makes one of numbers, is computed at once, and what
comes of it is plain again. Where a plain tensor meets one of the trace it becomes a constant of the graph; what the
trace computes must not be written into it, since later functions of it would not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

_MAKERS = frozenset(
    (torch.arange, torch.as_tensor, torch.empty, torch.full, torch.linspace, torch.ones, torch.tensor, torch.zeros)
)  # fmt: skip
"""Functions that make a tensor of numbers."""
_EQUALS = frozenset((torch.eq, torch.Tensor.eq, torch.Tensor.__eq__))
_WRITES = re.compile(r"__(setitem|i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor))__|(?!__)\w*[^_]_")
"""Names of functions that write to their first tensor."""
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class WrittenOverError(Exception):
    """A model writes what the trace computes into a tensor whose values are known."""

    def __init__(self) -> None:
        super().__init__("its code writes features into a tensor that it has made of numbers")


class KnownValues(TorchFunctionMode):
    """Computes functions of plain tensors for real; see the module.

    Raises:
        WrittenOverError: a plain tensor is written to, and the values are not known.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        given = (arguments, options or {})
        tensors = [value for value in _leaves(given) if isinstance(value, torch.Tensor)]
        is_known = all(map(is_plain, tensors)) and (tensors or function in _MAKERS)
        if is_known and not any(isinstance(value, _SYMBOLS) for value in _leaves(given)):
            with _disable_current_modes():
                return function(*arguments, **(options or {}))
        if tensors and is_plain(tensors[0]) and _WRITES.fullmatch(getattr(function, "__name__", "")):
            raise WrittenOverError
        if tensors and not is_known:
            arguments, options = _with_values(given)
            if function is torch.Tensor.__getitem__:
                arguments = (arguments[0], _by_places(arguments[1]))
        return function(*arguments, **(options or {}))


class Unpadded(TorchFunctionMode):
    """Knows that a picture has no padding: models look for it by comparing numbers of a picture with 0.

    A request brings one picture, all of whose tiles are real ones.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if function in _EQUALS and isinstance(arguments[1], int | float) and arguments[1] == 0:
            numbers = arguments[0]
            if not is_plain(numbers) and numbers.is_floating_point():
                with _disable_current_modes():
                    return torch.zeros(tuple(map(int, numbers.shape)), dtype=torch.bool)
        return function(*arguments, **(options or {}))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values: it is none of the trace."""
    return type(tensor) is torch.Tensor


def _leaves(given: Any) -> Iterator[Any]:
    match given:
        case list() | tuple():
            for value in given:
                yield from _leaves(value)
        case dict():
            yield from _leaves(list(given.values()))
        case slice():
            yield from _leaves([given.start, given.stop, given.step])
        case _:
            yield given


def _with_values(given: Any) -> Any:
    """The same arguments; plain tensors with one whole number become that number, for they are sizes."""
    match given:
        case torch.Tensor() if is_plain(given) and given.ndim == 0 and not given.is_floating_point():
            with _disable_current_modes():
                return given.item()
        case list():
            return [_with_values(value) for value in given]
        case tuple() if type(given) is tuple:
            return tuple(_with_values(value) for value in given)
        case dict():
            return {name: _with_values(value) for name, value in given.items()}
        case slice():
            return slice(*(_with_values(value) for value in (given.start, given.stop, given.step)))
        case _:
            return given


def _by_places(index: Any) -> Any:
    """An index with the places of a plain mask in its stead, so that it is known how many there are."""
    if isinstance(index, torch.Tensor) and is_plain(index) and index.dtype == torch.bool:
        with _disable_current_modes():
            return index.nonzero(as_tuple=True)
    return index
