"""Tensors that the operations of a network compute in a forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shapes = Mapping[str, set[tuple[int, ...]]]
"""Name of a value → the shapes that it may have in the original."""


def watch_operations(run: Callable[[], Any], shapes: Shapes) -> dict[str, list[Array]]:
    """Name of a value → the tensors of its shapes that any operation computes while `run` runs.

    transformers' modules give no names to what they compute inside, so a value may be any of them.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    wanted = set[tuple[int, ...]]().union(*shapes.values())
    seen: list[Array] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if str(function) == "aten.addmm.default":
                seen.extend(_without_bias(result, args[0], wanted))
            for item in result if isinstance(result, tuple | list) else [result]:
                if isinstance(item, torch.Tensor) and tuple(item.shape) in wanted:
                    seen.append(numbers(item.clone()))
            return result

    with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
        run()
    return {name: [tensor for tensor in seen if tensor.shape in of] for name, of in shapes.items()}


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
