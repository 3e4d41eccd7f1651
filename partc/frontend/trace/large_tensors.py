"""Tensors of a model that is built without its weights, where they are too large to be made even for a moment.

A parameter becomes fake as soon as a module registers it, but the module makes it before: all experts of a layer may
take 30 GB, which the system refuses, and zeros are written one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

BUFFER_BYTES = 256 << 20
"""Bytes of the largest tensor that may become a buffer, whose values count: those above are fake from the start."""
_aten = torch.ops.aten
_FACTORIES = (_aten.empty, _aten.zeros, _aten.ones, _aten.full, _aten.rand, _aten.randn)


class LargeAreFake(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """As long as it is entered, tensors above `BUFFER_BYTES` are made as fake ones of `mode`."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mode = mode

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        options = options or {}
        if function.overloadpacket in _FACTORIES and _bytes_of(arguments[0], options) > BUFFER_BYTES:
            with self.mode:
                return function(*arguments, **options)
        return function(*arguments, **options)


def _bytes_of(sizes: Sequence[int], options: Mapping[str, Any]) -> int:
    dtype = options.get("dtype") or torch.get_default_dtype()
    return math.prod(sizes) * int(dtype.itemsize)
