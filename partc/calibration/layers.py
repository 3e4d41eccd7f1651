"""The layers of a network, called one after the other: each gets what the one before it made, and nothing else new.

A network is run once for one window, and its layers' arguments are kept. For other windows of the same length only the
input of the first layer may differ: masks and rotary tables depend on positions alone. That is held against a second
window, since some layers read more of a token (Gemma 4). So a layer can be called for all windows, changed, and called
again for what the next layer gets, while no other layer is computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from partc.calibration import INSTEAD
from partc.errors import ModelError

_HIDDEN = "hidden_states"


@dataclass(frozen=True)
class Call:
    """The arguments of a layer besides its input."""

    others: tuple[Any, ...]
    named: Mapping[str, Any]
    by_name: bool
    """Whether the input comes by the name `hidden_states`, else as the first argument."""

    def run(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The layer's result for another input."""
        if self.by_name:
            return _first(layer(*self.others, **{**self.named, _HIDDEN: hidden}))
        return _first(layer(hidden, *self.others, **self.named))


class _Reached(Exception):
    """A layer was reached, and nothing behind it is wanted."""


def layers_of(network: nn.Module) -> tuple[str, Sequence[nn.Module]]:
    """The name of the list of layers, the largest list of modules of one kind, and its layers.

    Raises:
        ModelError: the network has no such list.
    """
    lists = [
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) and len({type(each) for each in module}) == 1
    ]
    if not lists:
        raise ModelError("its code has no list of layers", hint=INSTEAD)
    name, found = max(lists, key=lambda item: sum(weight.numel() for weight in item[1].parameters()))
    return name, list(found)


def calls_of(network: nn.Module, layers: Sequence[nn.Module], window: Tensor) -> list[Call]:
    """The arguments of each layer in one run of the network.

    Raises:
        ModelError: the layers are not called one after the other, each with what the one before it made; or the network
            does not compute such a window.
    """
    calls: list[Call] = []
    made: list[Tensor] = []

    def before(layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        by_name = _HIDDEN in named
        hidden = _input(arguments, named)
        if len(calls) >= len(layers) or layers[len(calls)] is not layer or (made and made[-1] is not hidden):
            raise ModelError("its layers are not called one after the other", hint=INSTEAD)
        others = arguments if by_name else arguments[1:]
        calls.append(Call(others, {key: value for key, value in named.items() if key != _HIDDEN}, by_name))

    def behind(layer: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        made[:] = [_first(result)]

    hooks = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(behind) for layer in layers]
    try:
        run_network(network, window)
    finally:
        for hook in hooks:
            hook.remove()
    if len(calls) != len(layers):
        raise ModelError("not all of its layers are called", hint=INSTEAD)
    return calls


def check_alike(calls: Sequence[Call], others: Sequence[Call]) -> None:
    """Refuse layers that read more of a window than their input.

    Raises:
        ModelError: the arguments of two windows differ.
    """
    for one, other in zip(calls, others, strict=True):
        pairs = zip(_tensors((one.others, one.named)), _tensors((other.others, other.named)), strict=True)
        if not all(torch.equal(first, second) for first, second in pairs):
            raise ModelError("its layers read tokens beside what the layer before them makes", hint=INSTEAD)


def run_network(network: nn.Module, window: Tensor) -> None:
    """Let a network read a window.

    Raises:
        ModelError: it cannot.
    """
    accepts = inspect.signature(network.forward).parameters
    try:
        network(input_ids=window, **({"use_cache": False} if "use_cache" in accepts else {}))
    except (ModelError, _Reached):
        raise
    except Exception as error:  # code of a model raises what it comes across
        size = window.shape[1]
        raise ModelError(f"its code does not read {size} tokens: {error}", hint=INSTEAD) from error


def first_input(network: nn.Module, layer: nn.Module, window: Tensor) -> Tensor:
    """Input of the first layer for a window."""
    found: list[Tensor] = []

    def before(layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append(_input(arguments, named))
        raise _Reached

    hook = layer.register_forward_pre_hook(before, with_kwargs=True)
    try:
        run_network(network, window)
    except _Reached:
        pass
    finally:
        hook.remove()
    return found[0]


class Products:
    """Sums of x xᵀ over the inputs x of linear modules, f32[K, K] each, which are collected inside of its block."""

    def __init__(self, modules: Mapping[str, nn.Linear]) -> None:
        self.sums: dict[str, Tensor] = {}
        self._modules = modules
        self._hooks: list[Any] = []

    def __enter__(self) -> Products:
        for name, module in self._modules.items():
            self._hooks.append(module.register_forward_pre_hook(self._adder(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _adder(self, name: str) -> Any:
        def add(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            rows = arguments[0].reshape(-1, arguments[0].shape[-1]).float()
            if name not in self.sums:
                self.sums[name] = torch.zeros(rows.shape[1], rows.shape[1])
            self.sums[name].addmm_(rows.T, rows)

        return add


def _input(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor:
    found = named.get(_HIDDEN, arguments[0] if arguments else None)
    if not isinstance(found, Tensor):
        raise ModelError("its layers have another kind of input", hint=INSTEAD)
    return found


def _first(result: Any) -> Tensor:
    found = result[0] if isinstance(result, tuple) else result
    if not isinstance(found, Tensor):
        raise ModelError("its layers have another kind of result", hint=INSTEAD)
    return found


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors within arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for each in value.values() for tensor in _tensors(each))
    elif isinstance(value, tuple | list):
        yield from (tensor for each in value for tensor in _tensors(each))
