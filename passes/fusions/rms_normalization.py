"""x / sqrt(mean(x²) + ε) · w becomes one `RMSNormalization`."""

from __future__ import annotations

import numpy as np

from partc.ir.edit import Names, drop_dead
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.match import Readers, become, either_order, made_by
from partc.ir.types import BY_SHORT
from passes.fusions.match import divided, is_scale, mean_of_square, rank, root_of

_Core = tuple[Value, float, list[Node]]


def fuse_rms_normalization(graph: Graph) -> int:
    """Produce ONNX `RMSNormalization` (opset 23): Y = cast(X / sqrt(mean(X², axis..) + epsilon)) · scale.

    Inputs X, scale; attributes axis, epsilon, stash_type (the type that X is cast to inside, f32).
    Recognised: both orders of every commutative operator, x² as Pow or Mul, 1/sqrt as Reciprocal, Div or
    Div by the root, a cast to f32 before and back after the normalisation (before the weight, as in Llama;
    a cast after the weight, as in Gemma, stays outside), and no weight at all, which is a scale of ones.
    Returns the number of fused patterns; O(nodes).
    """
    fused = _with_weight(graph)
    drop_dead(graph)  # what the first step replaced must not count as readers in the second
    return fused + _without_weight(graph)


def _with_weight(graph: Graph) -> int:
    readers = Readers(graph)
    return sum(_fuse_product(node, readers) for node in graph.nodes if node.op == "Mul")


def _fuse_product(node: Node, readers: Readers) -> bool:
    for scale, normalized in either_order(node):
        found = _cast_core(normalized, scale) or _core(normalized)
        if found is None:
            continue
        x, epsilon, inner = found
        if (
            x.shape
            and is_scale(scale, x.shape[-1])
            and x.dtype == scale.dtype
            and readers.only_inside(inner, node)
        ):
            _become(node, x, scale, epsilon)
            return True
    return False


def _without_weight(graph: Graph) -> int:
    readers = Readers(graph)
    names = Names(graph)
    ones: dict[tuple[str, int], Constant] = {}
    fused = 0
    for node in graph.nodes:
        found = _core_at(node)
        if found is None:
            continue
        x, epsilon, inner = found
        size, dtype = (x.shape or ("",))[-1], x.dtype
        if not isinstance(size, int) or dtype is None or not readers.only_inside(set(inner) - {node}, node):
            continue
        if (dtype, size) not in ones:
            array = np.ones(size, BY_SHORT[dtype].numpy)
            ones[dtype, size] = Constant(names.fresh(f"ones.{size}"), dtype, (size,), array=array)
        _become(node, x, ones[dtype, size], epsilon)
        fused += 1
    return fused


def _become(node: Node, x: Value, scale: Value, epsilon: float) -> None:
    stash = BY_SHORT["f64" if x.dtype == "f64" else "f32"].onnx
    become(node, "RMSNormalization", [x, scale], axis=-1, epsilon=epsilon, stash_type=stash)


def _cast_core(normalized: Value, scale: Value) -> _Core | None:
    """The pattern between a cast to f32 and one back to the type of x."""
    back = made_by(normalized, "Cast")
    found = _core(back.inputs[0]) if back else None
    if back is None or found is None:
        return None
    wide, epsilon, inner = found
    there = made_by(wide, "Cast")
    x = there.inputs[0] if there else None
    if x is None or wide.dtype != "f32" or x.dtype != normalized.dtype:
        return None
    return x, epsilon, [*inner, back]


def _core(normalized: Value | None) -> _Core | None:
    node = made_by(normalized, "Mul", "Div")
    return None if node is None else _core_at(node)


def _core_at(node: Node) -> _Core | None:
    """(x, ε, nodes) of x / sqrt(mean(x²) + ε) where `node` makes the quotient; x is in f32 or wider."""
    if node.op not in ("Mul", "Div"):
        return None
    for x, denominator, inverse in divided(node):
        root = root_of(denominator)
        square = mean_of_square(root[0]) if root else None
        if root is None or square is None or square[0] is not x or rank(x) < 1:
            continue
        if x.dtype in ("f32", "f64"):
            return x, root[1], [node, *inverse, *root[2], *square[1]]
    return None
