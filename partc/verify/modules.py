"""Tensors that the modules of a network compute in a forward pass, by the names of the modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shapes = Mapping[str, set[tuple[int, ...]]]
"""Name of a value → the shapes that it may have in the original."""


def module_of(value: str, modules: Iterable[str]) -> str | None:
    """The module that computes the value `model.layers.0.mlp.mul`; None where no module's name begins it."""
    found = [name for name in modules if name and (value == name or value.startswith(f"{name}."))]
    return max(found, key=len, default=None)


def watch_modules(network: Any, run: Callable[[], Any], shapes: Shapes) -> dict[str, list[Array]]:
    """Name of a value → the tensors of its shapes that its module computes while `run` runs.

    Values are named after the module that computes them. The one with the very name of a module is the last that the
    module computes; another one is among the others that it computes by itself, not through modules inside of it. A
    value that is named after no module has no entry.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    names = {module: name for name, module in network.named_modules()}
    owners = {value: module_of(value, names.values()) for value in shapes}
    wanted: dict[str, set[tuple[int, ...]]] = {}
    for value, owner in owners.items():
        if owner is not None:
            wanted.setdefault(owner, set()).update(shapes[value])
    seen: dict[str, list[Array]] = {}
    last_shape: dict[str, tuple[int, ...]] = {}
    stack: list[str] = [""]

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            of_interest = wanted.get(stack[-1], set())
            if of_interest and str(function) == "aten.addmm.default":
                seen.setdefault(stack[-1], []).extend(_without_bias(result, args[0], of_interest))
            for item in result if isinstance(result, tuple | list) else [result]:
                last_shape[stack[-1]] = tuple(item.shape) if isinstance(item, torch.Tensor) else ()
                if last_shape[stack[-1]] in of_interest and isinstance(item, torch.Tensor):
                    seen.setdefault(stack[-1], []).append(numbers(item.clone()))
            return result

    hooks = [
        torch.nn.modules.module.register_module_forward_pre_hook(
            lambda module, _: stack.append(names.get(module, stack[-1]))
        ),
        torch.nn.modules.module.register_module_forward_hook(
            lambda *_: (stack.pop(), None)[1], always_call=True
        ),
    ]
    try:
        with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return {
        value: _fitting(seen.get(owner, []), shapes[value], last_shape.get(owner), last=value == owner)
        for value, owner in owners.items()
        if owner is not None
    }


def _fitting(
    tensors: list[Array], shapes: set[tuple[int, ...]], last_shape: tuple[int, ...] | None, *, last: bool
) -> list[Array]:
    """The last tensor of a module, or the others, as far as they have one of these shapes."""
    found = [tensor for tensor in tensors if tensor.shape in shapes]
    if last:
        return found[-1:]
    is_result = bool(found) and found[-1].shape == last_shape
    return (found[:-1] or found) if is_result else found


def _without_bias(result: Any, bias: Any, shapes: set[tuple[int, ...]]) -> list[Array]:
    """A product as it was before a bias was added, in each of these shapes that it can have."""
    plain = numbers(result - bias)
    return [
        plain.reshape(shape)
        for shape in shapes
        if math.prod(shape) == plain.size and shape[-1:] == plain.shape[-1:]
    ]


def numbers(tensor: Any) -> Array:
    """The values of a torch tensor; numpy has no bfloat16, so that becomes float32."""
    import torch

    plain = tensor.detach()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
