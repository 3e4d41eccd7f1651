"""A tensor that only remembers what is done to it.

`transformers` converts some checkpoints while it loads them (experts are stacked, projections joined). Its conversion
code runs here on these tensors instead of real ones, and what it does becomes the weight's reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from partc.errors import ModelError
from partc.frontend.safetensors import StoredTensor
from partc.ir.encodings.blocks import BLOCK_FORMATS
from partc.ir.weights import Argument, Join, Step, WeightExpr


@dataclass(frozen=True)
class SymbolicTensor:
    """A weight expression that behaves like a torch tensor as far as checkpoint conversions need."""

    expr: WeightExpr
    shape: tuple[int, ...]
    dtype: Any = torch.float32
    device: str = "cpu"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def T(self) -> SymbolicTensor:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    def size(self, axis: int | None = None) -> Any:
        """All sizes, or one."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """Number of axes."""
        return self.ndim

    def contiguous(self) -> SymbolicTensor:
        """Itself: references have no layout."""
        return self

    clone = detach = contiguous

    def to(self, *args: Any, **kwargs: Any) -> SymbolicTensor:
        """Itself: the element type is set once, at the end."""
        return self

    def _step(self, op: str, arguments: Sequence[Argument], shape: Sequence[int]) -> SymbolicTensor:
        return SymbolicTensor(Step(op, tuple(arguments), self.expr), tuple(shape), self.dtype, self.device)

    def transpose(self, first: int, second: int) -> SymbolicTensor:
        """Two axes exchanged."""
        axes = list(range(self.ndim))
        axes[first], axes[second] = axes[second], axes[first]
        return self.permute(*axes)

    def permute(self, *axes: int) -> SymbolicTensor:
        """Axes in another order."""
        return self._step(
            "transpose", [axis % self.ndim for axis in axes], [self.shape[axis] for axis in axes]
        )

    def reshape(self, *shape: Any) -> SymbolicTensor:
        """Other sizes, one of which may be -1."""
        sizes = [
            int(size) for size in (shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        ]
        if -1 in sizes:
            known = -math.prod(sizes)
            sizes[sizes.index(-1)] = math.prod(self.shape) // known
        return self._step("reshape", sizes, sizes)

    view = reshape

    def squeeze(self, axis: int) -> SymbolicTensor:
        """Without an axis of size 1."""
        axis %= self.ndim
        return self.reshape([size for at, size in enumerate(self.shape) if at != axis])

    def unsqueeze(self, axis: int) -> SymbolicTensor:
        """With a further axis of size 1."""
        axis %= self.ndim + 1
        return self.reshape([*self.shape[:axis], 1, *self.shape[axis:]])

    def split(self, sizes: Any, dim: int = 0) -> tuple[SymbolicTensor, ...]:
        """Pieces along an axis."""
        dim %= self.ndim
        whole = self.shape[dim]
        pieces = (
            list(sizes)
            if not isinstance(sizes, int)
            else [min(sizes, whole - at) for at in range(0, whole, sizes)]
        )
        parts, start = [], 0
        for size in pieces:
            shape = (*self.shape[:dim], size, *self.shape[dim + 1 :])
            parts.append(self._step("slice", (dim, start, start + size), shape))
            start += size
        return tuple(parts)

    def chunk(self, count: int, dim: int = 0) -> tuple[SymbolicTensor, ...]:
        """Equal pieces along an axis."""
        return self.split(-(-self.shape[dim] // count), dim)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The result of `torch.cat`, `torch.stack`, … of these tensors."""
        name = function.__name__
        options = kwargs or {}
        if name in ("cat", "concat", "concatenate"):
            return _join("concat", *args, **options)
        if name == "stack":
            return _join("stack", *args, **options)
        method = getattr(cls, name, None)
        if method is None or name.startswith("__"):
            raise ModelError(f"the checkpoint needs a conversion that partc does not know: torch.{name}")
        return method(*args, **options)


def numbers_of(rows: WeightExpr, stored: StoredTensor) -> SymbolicTensor:
    """The numbers that a stored tensor stands for; `rows` are its own, rearranged perhaps."""
    if stored.float8:
        return SymbolicTensor(Step("float8", (stored.float8,), rows), stored.shape, "f32")
    if stored.blocks:
        form = BLOCK_FORMATS[stored.blocks]
        shape = (*stored.shape[:-1], stored.shape[-1] // form.bytes * form.weights)
        return SymbolicTensor(Step("decode", (stored.blocks,), rows), shape, "f32")
    return SymbolicTensor(rows, stored.shape, stored.dtype)


def _join(op: str, parts: Sequence[SymbolicTensor], dim: int = 0) -> SymbolicTensor:
    first = parts[0]
    expr = Join(op, dim % (first.ndim + (op == "stack")), tuple(part.expr for part in parts))
    if op == "stack":
        axis = dim % (first.ndim + 1)
        return SymbolicTensor(expr, (*first.shape[:axis], len(parts), *first.shape[axis:]), first.dtype)
    axis = dim % first.ndim
    total = sum(part.shape[axis] for part in parts)
    return SymbolicTensor(expr, (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)
