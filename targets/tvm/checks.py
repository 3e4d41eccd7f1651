"""The refusals of the target, before anything long starts: operators, forms of them, types, options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from partc.errors import ConfigError, UserError
from partc.ir.graph import Graph, Node, Value, Weight
from partc.ir.operators import (
    CAUSAL_CONV,
    LINEAR_ATTENTION,
    QUANTIZED,
)
from partc.ir.operators.quantized import bits_of, block_of
from partc.ir.panels import BLOCK
from partc.ir.weight_formats import by_format
from partc.ir.weights import Step
from partc.ir.whole import is_whole

if TYPE_CHECKING:
    from targets.tvm.builder import Expr, FunctionBuilder

RECURRENT = (CAUSAL_CONV.name, LINEAR_ATTENTION.name)
_STORED = frozenset(("u8", "i8"))
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
    """Why there is no code for a node, whatever its sizes; None where there may be some."""
    if is_whole(node.op):
        name = node.op.rpartition(".")[2]
        what = f"the tvm target has no code for {name}, whose graphs are chosen while it runs"
        return _refused(
            node, what, f"{_OTHER_TARGET}, or fix in model.yaml what decides: `dims` and `inputs`"
        )
    return _quantized_refusal(node) if node.op in QUANTIZED else None


def _quantized_refusal(node: Node) -> UserError | None:
    """Kernels of quantised products read panels, of whole blocks of 32, and of 16 with 8 bits."""
    none = f"the tvm target has no code for {node.op}"
    hint = "use `target: ort` for these devices, or write `quantize: none` in model.yaml"
    if block_of(node) % by_format(bits_of(node), block_of(node), int4=BLOCK, int8=1, int8_blocks=16):
        hint = f"write `block: 32`, 64, 128 or 256 in `quantize` of model.yaml, or {_OTHER_TARGET}"
        return _refused(node, f"{none} with blocks of {block_of(node)}", hint)
    if any(value.dtype in _STORED and not _is_quantised_here(value) for value in node.operands):
        return _refused(node, f"{none} with data that partc has not quantised", hint)
    return None


_PANEL_SOURCES = frozenset({"quantize", "integers"})


def _is_quantised_here(value: Value) -> bool:
    """Whether panels can be made of it: of the matrix that it is made of, or of integers that are stored."""
    return isinstance(value, Weight) and isinstance(value.source, Step) and value.source.op in _PANEL_SOURCES


def check_nodes(graph: Graph) -> None:
    """Refuse nodes that there is no code for, whatever their sizes.

    Raises:
        UserError: names the first node.
    """
    for node in graph.nodes:
        if (refusal := refusal_of(node)) is not None:
            raise refusal


def check_not_empty(graph: Graph) -> None:
    """Refuse inputs, states, weights and outputs without elements: a plan has no place for them.

    Raises:
        UserError: names the value.
    """
    for value in (*graph.inputs, *graph.states(), *graph.weights(), *graph.outputs):
        if 0 in (value.shape or ()):
            raise UserError(
                f"the tvm target has no code for %{value.name}, which is empty: {list(value.shape or ())}",
                where=f"graph {graph.name}",
                hint=_OTHER_TARGET,
            )


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
    from targets.tvm.quantized import OPERATORS as QUANTIZED_OPERATORS

    of_any_form = dict.fromkeys((*QUANTIZED_OPERATORS, *RECURRENT), _of_any_form)
    emitters = {**OPERATORS, **of_any_form}
    builder = ModuleBuilder(emitters, frozenset())
    for number, graph in enumerate(graphs):
        builder.add(f"graph_{number}", graph, [*graph.inputs, *graph.states(), *graph.weights()])


def _of_any_form(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """A stand-in for kernels that have every form: results of the right types."""
    from tvm import relax

    from targets.tvm.builder import type_of

    kinds = map(type_of, node.outputs)
    return [relax.op.zeros(kind.shape, kind.dtype) for kind in kinds]


def _refused(node: Node, message: str, hint: str) -> UserError:
    return UserError(message, where=node.place, hint=hint)
