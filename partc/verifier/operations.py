"""Tensors that the operations of a network compute in a forward pass, by the lines of code that ask for them."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.frontend.trace.statements import Computation, Statement, parse_computation, short_name

Array = npt.NDArray[Any]

_ITEM = "getitem"
"""The operator by which a trace takes one of several results."""


@dataclass(frozen=True)
class _Result:
    """What an operation returned."""

    operator: str
    array: Array
    call: int
    """How many times its module had been called before."""
    unbiased: Array | None = None
    """The same without the bias, of a product with one."""


def watch_operations(network: Any, run: Callable[[], Any], wanted: Iterable[str]) -> dict[str, Array]:
    """The text of a computation → its result while `run` runs; those that cannot be told apart are left out.

    Memory is that of the results of all lines that make one of `wanted`.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    computations = {text: parse_computation(text) for text in wanted}
    statements = {one.statement for one in computations.values()}
    places = _Places(statements)
    seen: dict[Statement, list[_Result]] = defaultdict(list)

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            statement = places.of(sys._getframe(1))
            if statement is not None:
                operator = _operator(function)
                bias = args[0] if operator == "addmm" else None
                seen[statement].extend(_results(operator, result, bias, places.calls[statement.scope]))
            return result

    with torch.no_grad(), places.followed(network), Watch():  # type: ignore[no-untyped-call]
        run()
    chosen = {text: _choose(one, seen[one.statement]) for text, one in computations.items()}
    return {text: array for text, array in chosen.items() if array is not None}


class _Places:
    """Where a network is while it runs: inside of which modules, and how often it was in each."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._statements = {(one.scope, one.file, one.line): one for one in statements}
        self._lines = {(file, line) for _, file, line in self._statements}
        self._scopes: list[tuple[str, FrameType | None]] = [("", None)]
        self.calls: Counter[str] = Counter()

    def of(self, frame: FrameType | None) -> Statement | None:
        """The innermost of the statements that is running; its line is run by its module, not by one inside of it."""
        inside = len(self._scopes) - 1
        while frame is not None:
            scope, entered = self._scopes[inside]
            if frame is entered:
                inside -= 1
            elif (line := (short_name(frame.f_code.co_filename), frame.f_lineno)) in self._lines:
                found = self._statements.get((scope, *line))
                if found is not None:
                    return found
            frame = frame.f_back
        return None

    @contextmanager
    def followed(self, network: Any) -> Iterator[None]:
        """While it lasts, calls of the network's modules are noted."""
        with ExitStack() as hooks:
            for name, module in network.named_modules():
                hooks.callback(module.register_forward_pre_hook(self._entered(name)).remove)
                hooks.callback(module.register_forward_hook(self._left, always_call=True).remove)
            yield

    def _entered(self, name: str) -> Callable[[Any, Any], None]:
        def enter(module: Any, arguments: Any) -> None:
            self._scopes.append((name, sys._getframe(1)))
            self.calls[name] += 1

        return enter

    def _left(self, module: Any, arguments: Any, result: Any) -> None:
        self._scopes.pop()


def _operator(function: Any) -> str:
    """`aten.add_.Tensor` → `add`: whether it writes in place makes no other result."""
    return str(function).split(".")[1].rstrip("_")


def _results(operator: str, result: Any, bias: Any, call: int) -> Iterator[_Result]:
    import torch

    if isinstance(result, torch.Tensor):
        unbiased = None if bias is None else numbers(result - bias)
        yield _Result(operator, numbers(result.clone()), call, unbiased)
    elif isinstance(result, tuple | list):
        items = [item for item in result if isinstance(item, torch.Tensor)]
        if (
            items
        ):  # the first is what it computes; those behind it are for gradients, where nothing takes them
            yield from _results(operator, items[0], bias, call)
        for item in items:
            yield from _results(_ITEM, item, None, call)


def _choose(wanted: Computation, seen: list[_Result]) -> Array | None:
    """The result that is meant: by its number among those of its operator, or as the last one of a line.

    The trace and the original may name an operator differently (a linear layer is a transpose, a product and two views
    here), and decompose it into more or fewer; what a line makes in the end is the same.
    """
    if not wanted.biased:
        return _unbiased(wanted, seen)
    same = [one.array for one in seen if one.operator == wanted.operator]
    if len(same) == wanted.count:
        return same[wanted.index]
    calls = {one.call: one.array for one in seen if one.operator != _ITEM}  # the last one of each
    each, left = divmod(wanted.places, len(calls)) if calls else (0, 1)
    if wanted.operator == _ITEM or left or not each or (wanted.place + 1) % each:
        return None
    return list(calls.values())[wanted.place // each]


def _unbiased(wanted: Computation, seen: list[_Result]) -> Array | None:
    """The product that is meant, in the sizes that its line gives it in the end."""
    products = [(one.unbiased, one.call) for one in seen if one.unbiased is not None]
    if len(products) != wanted.count:
        return None
    product, call = products[wanted.index]
    whole = [one.array for one in seen if one.call == call][-1]
    return product.reshape(whole.shape) if product.size == whole.size else None


def numbers(tensor: Any) -> Array:
    """The values of a torch tensor; numpy has no bfloat16, so that becomes float32."""
    import torch

    plain = tensor.detach()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
