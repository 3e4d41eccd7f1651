"""The refusals of the target, before anything long starts: operators, forms of them, types, options."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from partc.errors import ConfigError, UserError
from partc.ir.graph import Graph, Node
from partc.ir.operators import QUANTIZED_EXPERTS, QUANTIZED_GATHER, QUANTIZED_MATMUL

_QUANTIZED = tuple(operator.name for operator in (QUANTIZED_MATMUL, QUANTIZED_GATHER, QUANTIZED_EXPERTS))
_SHORT = frozenset(("f16", "bf16"))
_OTHER_TARGET = "use `target: ort` for this device"


def check_sizes(name: str, sizes: Sequence[int]) -> None:
    """Refuse entries without rows or sequences.

    Raises:
        ConfigError: a size of the option `name` is less than 1.
    """
    if any(size < 1 for size in sizes):
        raise ConfigError(
            f"expected sizes of at least 1, found {min(sizes)}", where=name, hint=f"write `{name}: [16, 64]`"
        )


def refusal_of(node: Node) -> UserError | None:
    """Why there is no code for a node, whatever its sizes; None where there may be some.

    Weights of 4 and 8 bits have no kernels. Sums in 16 bits are what TVM makes of operands that have 16: digits and
    large sums would be lost.
    """
    if node.op in _QUANTIZED:
        hint = (
            "use `target: ort` for the devices of a quantised model, or write `quantize: none` in model.yaml"
        )
        return _refused(node, f"the tvm target has no code for {node.op}", hint)
    short = next((value for value in node.operands if value.dtype in _SHORT), None)
    if short is not None and node.op in _adding():
        what = f"the tvm target computes {node.op} in f32, and %{short.name} is {short.dtype}"
        hint = f"write `dtype: float32` in model.yaml (an ONNX file: export it so), or {_OTHER_TARGET}"
        return _refused(node, what, hint)
    return None


@cache
def _adding() -> frozenset[str]:
    """The operators that add up; none where TVM, whose code tells, is not installed."""
    if importlib.util.find_spec("tvm") is None:
        return frozenset()
    from targets.tvm.operators.attention import EMITTERS
    from targets.tvm.operators.products import PRODUCTS
    from targets.tvm.operators.reductions import REDUCTIONS

    return frozenset((*PRODUCTS, *REDUCTIONS, *EMITTERS))


def check_nodes(graph: Graph) -> None:
    """Refuse nodes that there is no code for, whatever their sizes.

    Raises:
        UserError: names the first node.
    """
    for node in graph.nodes:
        if (refusal := refusal_of(node)) is not None:
            raise refusal


def check_operators(graph: Graph, known: Mapping[str, Any]) -> None:
    """Refuse operators that have no code.

    Raises:
        UserError: names the first node.
    """
    for node in graph.nodes:
        if node.op not in known:
            raise _refused(node, f"the tvm target has no code for {node.op}", _OTHER_TARGET)


def check_forms(graphs: Sequence[Graph]) -> None:
    """Refuse forms of operators that have no code, by writing static graphs as plain operators once.

    Equal layers are written once, so that this takes little more than the distinct nodes.

    Raises:
        UserError: names the first node.
    """
    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.operators import OPERATORS

    builder = ModuleBuilder(OPERATORS, frozenset())
    for number, graph in enumerate(graphs):
        builder.add(f"graph_{number}", graph, [*graph.inputs, *graph.states(), *graph.weights()])


def _refused(node: Node, message: str, hint: str) -> UserError:
    return UserError(message, where=node.place, hint=hint)
