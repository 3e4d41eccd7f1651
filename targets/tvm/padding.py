"""Checks that a graph may run in an entry larger than the step: its results must not depend on what is filled up.

Models that partc traces are padded along `batch`, `sequence` and `source`: their rows do not look at rows of padding,
since attention counts positions. Of an ONNX file nothing is known, so it is padded along the first axis alone, and only
where every node is seen to compute the rows of that axis each for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from partc.errors import UserError
from partc.format.dims import Dim, factors, symbols
from partc.format.tasks import SOURCE
from partc.ir.effects import updates
from partc.ir.graph import Constant, Graph, Input, ModelInfo, Node, Value
from partc.ir.operators import ATTENTION, QUANTIZED_EXPERTS, QUANTIZED_GATHER, QUANTIZED_MATMUL
from partc.ir.operators.attention import mask_of

ROWS = ("batch", "sequence")
"""The factors of an axis that holds the rows of all sequences, one sequence after the other."""
_VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Identity"))
"""Operators that keep the order of the elements, or repeat them."""
_OF_THE_FIRST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
     "InstanceNormalization", "GroupNormalization", "DepthToSpace", "SpaceToDepth")
)  # fmt: skip
"""Operators whose first operand has samples on its first axis, by definition."""
_ALONG_AXIS = {
    "Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1, "RMSNormalization": -1, "LpNormalization": -1,
    "Concat": 0, "Split": 0, "TopK": -1, "GatherElements": 0, "ScatterElements": 0,
}  # fmt: skip
"""Operators that mix along an attribute `axis`, with its default."""


def check_padding(graph: Graph, info: ModelInfo) -> None:
    """Refuse a symbolic graph whose steps cannot be padded to the sizes of an entry and its results cut back.

    O(nodes + edges).

    Raises:
        UserError: names the value, or the node, that stands in the way.
    """
    traced = info.task != "graph"
    for value in (*graph.inputs, *graph.outputs):
        for axis, dim in enumerate(value.shape or ()):
            if not _can_be_padded(dim, axis, traced):
                raise _refused(
                    f"%{value.name} has the size {dim!r} on axis {axis}", f"graph {graph.name}", str(dim)
                )
    _check_masks(graph)
    if not traced:
        _check_rows_apart(graph, info)
    elif info.max_batch > 1:
        _check_order_of_rows(graph)


def _check_masks(graph: Graph) -> None:
    """Refuse a mask over a source that comes from outside in floats: what fills it up, zeros, would show padding."""
    for node in graph.nodes:
        mask = mask_of(node) if node.op == ATTENTION.name else None
        if isinstance(mask, Input) and mask.dtype != "bool" and SOURCE in (mask.shape or ()):
            raise _refused(f"%{mask.name} adds to the scores of a source", node.place)


def check_states(graph: Graph) -> None:
    """Refuse a graph whose states cannot be changed in place: what Relax finds nobody reads, it drops.

    Raises:
        UserError: a state is read beside its update, or an updated state is not read.
    """
    readers = graph.consumers()
    read = {*readers, *graph.outputs}
    for state in graph.states():
        nodes = readers.get(state, [])
        updated = [node for node in nodes if state in updates(node)]
        dropped = [node for node in updated if not read & {*node.outputs}]
        if len(nodes) != 1 or nodes != updated or dropped or state in graph.outputs:
            what = "is updated, and nobody reads it then" if dropped else "is read beside its update"
            raise UserError(
                f"the state %{state.name} {what}, which the tvm target cannot compile",
                where=f"graph {graph.name}",
                hint="use `target: ort` for this device",
            )


def _refused(what: str, where: str, size: str = "NAME") -> UserError:
    return UserError(
        f"{what}, which the tvm target cannot fill up",
        where=where,
        hint=f"write dims: {{{size}: {{exactly: N}}}} in model.yaml where an ONNX file is compiled, "
        "or use `target: ort` for this device",
    )


def _can_be_padded(dim: Dim, axis: int, traced: bool) -> bool:
    if traced:
        return isinstance(dim, int) or factors(dim) in ((ROWS[0],), (ROWS[1],), (SOURCE,), ROWS)
    return not symbols(dim) or (axis == 0 and str(dim).isidentifier())


def _check_order_of_rows(graph: Graph) -> None:
    """Refuse an axis `batch*sequence` that is not one sequence after the other.

    Such an input or output is cut as two axes. It is right if every node that joins or parts the two does so in this
    order; a graph that does neither computes row by row, in whatever order.
    """
    if not any(
        factors(dim) == ROWS for value in (*graph.inputs, *graph.outputs) for dim in value.shape or ()
    ):
        return
    for node in graph.nodes:
        read = any(_joined(value) is not None for value in node.operands)
        for value in node.outputs:
            if (_joined(value) is not None) == read or node.inputs[0] is None:
                continue
            whole, parts = (node.inputs[0], value) if read else (value, node.inputs[0])
            if node.op not in _VIEWS or not _in_order(whole, parts):
                raise _refused(f"%{value.name} has batch and sequence in another order", node.place)


def _joined(value: Value) -> int | None:
    """The axis on which batch and sequence are one, alone or times something."""
    return next((axis for axis, dim in enumerate(value.shape or ()) if symbols(dim) >= set(ROWS)), None)


def _in_order(whole: Value, parts: Value) -> bool:
    place, all_of_it, shape = _joined(whole), whole.shape or (), parts.shape or ()
    if place is None or factors(all_of_it[place]) != ROWS:
        return False
    return shape[place : place + 2] == ROWS and all_of_it[:place] == shape[:place]


def _check_rows_apart(graph: Graph, info: ModelInfo) -> None:
    """Refuse the first node that may mix rows of the first axis, or tell how many there are."""
    padded = frozenset(symbol for symbol, most in info.dims.items() if most > 1)
    counts: set[Value] = set()
    for node in graph.nodes:
        rows = [value for value in node.operands if _varies(value, padded)]
        counted = [value for value in node.operands if value in counts]
        if node.op in ("Shape", "Size") and rows:
            counts.update(node.outputs)
            continue
        if not rows and all(not _varies(value, padded) for value in node.outputs):
            counts.update(node.outputs if counted else ())
            continue
        sizes_alone = all(value not in (counts - set(_targets(node))) for value in node.operands)
        if not (
            sizes_alone and _have_row_axis((*rows, *node.outputs), padded) and _keeps_rows_apart(node, rows)
        ):
            raise _refused(f"{node.op} may mix rows of {', '.join(sorted(padded))}", node.place)
    for value in graph.outputs:
        if value in counts:
            raise _refused(f"%{value.name} tells how many rows there are", f"graph {graph.name}")


def _varies(value: Value, padded: frozenset[str]) -> bool:
    return value.shape is None or any(symbols(dim) & padded for dim in value.shape)


def _have_row_axis(values: Iterable[Value], padded: frozenset[str]) -> bool:
    """Whether the first axis, and it alone, is a symbol, the same of all values."""
    firsts = set()
    for value in values:
        first, *others = value.shape or (0,)
        if first not in padded or any(symbols(dim) & padded for dim in others):
            return False
        firsts.add(first)
    return len(firsts) == 1


def _targets(node: Node) -> Iterable[Value]:
    """The operands that say what size to make, rather than what to compute with."""
    if node.op in ("Reshape", "Expand"):
        return (value for value in node.inputs[1:2] if value is not None)
    return node.operands if node.op in ("ConstantOfShape", "Range") else ()


def _keeps_rows_apart(node: Node, rows: list[Value]) -> bool:
    """Whether row i of what this makes depends on rows i of its operands; all of these have rows on axis 0."""
    from targets.tvm.operators.elementwise import ELEMENTWISE

    rank = len(node.outputs[0].shape or ())
    same_rank = all(len(value.shape or ()) == rank for value in rows)
    first = [value for value in node.operands if value is node.inputs[0]]
    alone = len(rows) == len(first) == 1 and rows == first
    match node.op:
        case op if op in ELEMENTWISE:
            return same_rank
        case op if op in _VIEWS or op in ("ConstantOfShape", "Range"):
            return True
        case op if op in _OF_THE_FIRST or op.startswith(("Reduce", "Arg")):
            return alone  # a reduction of the first axis leaves none of that size
        case op if op in _ALONG_AXIS:
            axis = node.attributes.get("axis", _ALONG_AXIS[op])
            return same_rank and isinstance(axis, int) and axis % max(1, len(rows[0].shape or ())) != 0
        case "MatMul":
            return same_rank and (rank > 2 or alone)
        case "Gemm":
            return same_rank and not node.attributes.get("transA") and node.inputs[1] not in rows
        case "Transpose":
            order = node.attributes.get("perm")
            return isinstance(order, tuple) and order[0] == 0
        case QUANTIZED_MATMUL.name:
            return same_rank and alone
        case QUANTIZED_GATHER.name:
            return rows == [node.inputs[2]]
        case QUANTIZED_EXPERTS.name:
            return rows == node.inputs[:2]
        case "Gather":
            return _gathers_apart(node, rows)
        case "Slice":
            return alone and 0 not in _axes_of_slice(node, rank)
        case "Pad":
            return alone and _pads_others(node, rank)
        case _:
            return False


def _gathers_apart(node: Node, rows: list[Value]) -> bool:
    axis = node.attributes.get("axis", 0)
    rank = len((node.inputs[0].shape if node.inputs[0] is not None else None) or (0,))
    if not isinstance(axis, int):
        return False
    return rows == [node.inputs[0]] if axis % rank else rows == [node.inputs[1]]


def _axes_of_slice(node: Node, rank: int) -> set[int]:
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    if isinstance(axes, Constant) and axes.array is not None:
        return {int(axis) % rank for axis in axes.array.reshape(-1)}
    return {0}


def _pads_others(node: Node, rank: int) -> bool:
    pads = node.inputs[1] if len(node.inputs) > 1 else None
    if not isinstance(pads, Constant) or pads.array is None or len(pads.array) != 2 * rank:
        return False
    return not pads.array[0] and not pads.array[rank]
