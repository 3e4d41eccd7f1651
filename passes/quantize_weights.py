"""`quantize-weights`: matrices of the model become integers with scales, as the model's header asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from partc.errors import ModelError
from partc.ir.edit import Names, drop_dead
from partc.ir.graph import Attribute, Constant, Graph, Module, Node, Value, Weight
from partc.ir.operators import QUANTIZED, QUANTIZED_EXPERTS, QUANTIZED_GATHER, QUANTIZED_MATMUL
from partc.ir.quantization import NONE, STORED, Quantization
from partc.ir.stored_integers import stored_integers
from partc.ir.weight_formats import FORMATS, WeightFormat
from partc.ir.weights import Step, WeightExpr
from partc.pipeline.contract import Context, Pass
from passes.rewrites.expert_products import ExpertProduct, expert, expert_products
from passes.rewrites.fold_weights import FLOATS, append

_PRODUCTS = ("MatMul", "Gemm")
_CHOICES = frozenset(
    {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Gather", "Transpose", "Expand"}
)
_BEHIND_HEAD = _CHOICES | {"Add", "Sub", "Mul", "Div", "Tanh"}
"""Operators that may stand between the product of the head and the logits: a bias, a soft cap, a choice of rows."""
_BEHIND_ROUTER = _BEHIND_HEAD | {"Softmax", "Sigmoid"}
"""Operators that may stand between the product of a router and the choice of experts."""


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Quantise products with a matrix of weights, and tables of tokens; all else keeps its precision."""

    name: ClassVar[str] = "quantize-weights"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "sized"

    def apply(self, module: Module, context: Context) -> bool:
        """Rewrite the graph as `module.info.quantize` asks for.

        Raises:
            ModelError: nothing in the graph can be quantised.
        """
        wanted = module.info.quantize
        if wanted is None or not wanted.has_weights:
            return False
        changed = quantize_weights(module.graph, wanted) > 0
        if wanted.only_stored and not any(node.op in QUANTIZED for node in module.graph.nodes):
            raise ModelError(
                "`quantize: stored` keeps integers, and no matrix of the checkpoint has any that a format holds",
                where=f"graph {module.graph.name}",
                hint="write `quantize: none`, or int4 or int8 to quantise it anew; docs/checkpoints.md says what fits",
            )
        if not any(node.op in QUANTIZED for node in module.graph.nodes):
            raise ModelError(
                "there is nothing to quantise: no product with a matrix of weights, no table of tokens",
                where=f"graph {module.graph.name}",
                hint="write `quantize: none`; convolutions and matrices of a few numbers keep their precision",
            )
        return changed


def quantize_weights(graph: Graph, wanted: Quantization) -> int:
    """Quantise in place; the number of nodes that were; O(nodes).

    The head is the product that makes the outputs of the graph; embeddings are tables whose rows a request picks.
    Two readers of one tensor at one precision share its data, a tied head and embedding among them. A router of experts
    keeps its precision: it is small, and what it chooses is all or nothing. What the checkpoint stores as integers
    of a format stays as it is where it is to be stored so or in that format.
    """
    writer = _Writer(graph, wanted)
    heads = _products_behind(graph.outputs, _BEHIND_HEAD)
    experts = expert_products(graph) if wanted.weights != NONE else {}
    choices = ("TopK", "ArgMax") if experts else ("TopK",)
    routers = _products_behind((n.inputs[0] for n in graph.nodes if n.op in choices), _BEHIND_ROUTER) - heads
    requested = _requested(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in experts:
            nodes.extend(writer.experts(node, experts[node], wanted.weights))
            continue
        precision = None if node in routers else _precision(node, wanted, heads, requested)
        nodes.extend([node] if precision is None else writer.quantized(node, precision))
    replaced = set(graph.nodes).difference(nodes)
    graph.nodes = nodes
    if experts:
        drop_dead(graph)  # what picked the experts
    return len(replaced)


def _precision(node: Node, wanted: Quantization, heads: set[Node], requested: set[Value]) -> str | None:
    """The precision that a node's weight is to have; None where it has none that can be quantised."""
    if _is_product(node):
        return wanted.head if node in heads else wanted.weights
    if _is_lookup(node) and node.inputs[1] in requested:
        return wanted.embeddings
    return None


def _is_product(node: Node) -> bool:
    """X · W with a matrix W of floats, plain or with a bias."""
    if node.op not in _PRODUCTS or not _is_matrix(node.inputs[1]):
        return False
    attributes = node.attributes
    return not attributes.get("transA") and attributes.get("alpha", 1) == 1 and attributes.get("beta", 1) == 1


def _is_lookup(node: Node) -> bool:
    return node.op == "Gather" and not node.attributes.get("axis") and _is_matrix(node.inputs[0])


def _is_matrix(value: Value | None) -> bool:
    return isinstance(value, Weight) and value.dtype in FLOATS and len(value.shape or ()) == 2


def _products_behind(values: Iterable[Value | None], through: frozenset[str]) -> set[Node]:
    """The products that values are made by, with nothing but operators of `through` on one value between."""
    found: set[Node] = set()
    for value in values:
        node = value.producer if value is not None else None
        while node is not None and not _is_product(node) and node.op in through:
            made = [v for v in node.operands if v.producer is not None]
            chosen = node.inputs[0] if node.op in _CHOICES else made[0] if len(made) == 1 else None
            node = chosen.producer if chosen is not None else None
        if node is not None and _is_product(node):
            found.add(node)
    return found


def _requested(graph: Graph) -> set[Value]:
    """The inputs of a request, and values that follow from them and constants: tokens, clipped or with an offset."""
    found: set[Value] = {value for value in graph.inputs if not value.is_step}
    for node in graph.nodes:
        operands = list(node.operands)
        if any(v in found for v in operands) and all(v in found or isinstance(v, Constant) for v in operands):
            found.update(node.outputs)
    return found


@dataclass(frozen=True)
class _Form:
    """How a matrix [N, K] of weights is to be stored."""

    format: WeightFormat
    block: int
    data: WeightExpr
    scales: WeightExpr
    rows: int
    columns: int
    offsets: WeightExpr | None = None

    @property
    def attributes(self) -> dict[str, Attribute]:
        """Those of nodes that read it."""
        return {"bits": self.format.bits, "block": self.block}


class _Writer:
    """Writes quantised nodes; what several read is made once."""

    def __init__(self, graph: Graph, wanted: Quantization) -> None:
        self._block = wanted.block
        self._otherwise = wanted.otherwise
        self._names = Names(graph)
        self._made: dict[tuple[WeightExpr, str], Weight] = {}

    def quantized(self, node: Node, precision: str) -> Iterator[Node]:
        """The nodes that take the place of `node`; itself where its weight keeps its precision."""
        is_lookup = node.op == "Gather"
        matrix = cast("Weight", node.inputs[0 if is_lookup else 1])
        turned = not is_lookup and (node.op == "MatMul" or not node.attributes.get("transB"))
        form = self._form(matrix, precision, turned=turned, takes_offsets=not is_lookup)
        if form is None:
            return iter([node])
        return self._lookup(node, matrix, form) if is_lookup else self._product(node, matrix, form)

    def _product(self, node: Node, matrix: Weight, form: _Form) -> Iterator[Node]:
        x, _, *bias = node.inputs
        stored: list[Value | None] = [*self._pair(matrix, form)]
        if form.offsets is not None:
            stored.append(self._offsets(matrix, form))
        output = node.outputs[0]
        product = replace(output, name=self._names.fresh(f"{node.name}.product")) if any(bias) else output
        yield Node(QUANTIZED_MATMUL.name, [x, *stored], [product], form.attributes, node.scope)
        if any(bias):
            yield Node("Add", [product, *bias], [output], {}, node.scope)

    def _lookup(self, node: Node, table: Weight, form: _Form) -> Iterator[Node]:
        indices = node.inputs[1]
        data, scales = self._pair(table, form)
        output, width = node.outputs[0], form.columns
        stored = -(-width // form.block) * form.block if form.block else width
        rows = output
        if stored != width:
            name = self._names.fresh(f"{node.name}.rows")
            rows = Value(name, output.dtype, (*(output.shape or ())[:-1], stored))
        yield Node(QUANTIZED_GATHER.name, [data, scales, indices], [rows], form.attributes, node.scope)
        if rows is not output:
            bounds = [self._integers(number) for number in (0, width, -1)]
            yield Node("Slice", [rows, *bounds], [output], {}, node.scope)

    def experts(self, node: Node, product: ExpertProduct, precision: str) -> Iterator[Node]:
        """The nodes that take the place of a product with experts in one tensor: each has its own data and scales."""
        whole, output = product.experts, node.outputs[0]
        rows, columns = (cast("int", size) for size in (whole.shape or ())[1:])
        matrices: list[tuple[Weight, _Form]] = []
        for index in range(cast("int", (whole.shape or ())[0])):
            name = f"{whole.name}.{index}"
            matrix = Weight(name, whole.dtype, (rows, columns), source=expert(whole, index))
            form = self._form(matrix, precision, turned=product.turned, takes_offsets=False)
            if form is None:
                yield node
                return
            matrices.append((matrix, form))
        weights: list[Value] = [value for pair in matrices for value in self._pair(*pair)]
        name = self._names.fresh(f"{node.name}.product")
        result = Value(name, output.dtype, ((product.x.shape or ())[0], columns if product.turned else rows))
        operands: list[Value | None] = [product.x, product.chosen, *weights]
        yield Node(QUANTIZED_EXPERTS.name, operands, [result], matrices[0][1].attributes, node.scope)
        yield Node("Unsqueeze", [result, self._integers(product.axis)], [output], {}, node.scope)

    def _form(self, weight: Weight, precision: str, *, turned: bool, takes_offsets: bool) -> _Form | None:
        """How a weight [N, K], or one [K, N] that is `turned`, is to be stored; None: as it is."""
        assert weight.source is not None
        source = append(weight.source, "transpose", 1, 0) if turned else weight.source
        rows, columns = reversed(_sizes(weight)) if turned else _sizes(weight)
        if precision == NONE:
            return None
        stored = stored_integers(source, columns)
        is_wanted = stored is not None and precision in (STORED, stored.format.name)
        if stored is not None and is_wanted and (takes_offsets or stored.offsets is None):
            return _Form(stored.format, stored.block, *stored.pair, rows, columns, stored.offsets)
        if precision == STORED:
            return self._form(weight, self._otherwise, turned=turned, takes_offsets=takes_offsets)
        kind = FORMATS[precision]
        block = kind.block(self._block)
        data, scales = (Step(step, (kind.bits, block), source) for step in ("quantize", "scales"))
        return _Form(kind, block, data, scales, rows, columns)

    def _pair(self, weight: Weight, form: _Form) -> tuple[Weight, Weight]:
        """Data and scales."""
        kind = form.format
        data = self._weight(f"{weight.name}.{kind.name}", form.data, kind.dtype)
        data.shape = kind.data_shape(form.rows, form.columns, form.block)
        dtype = weight.dtype or "f32"
        source = form.scales if dtype == "f32" else Step("cast", (dtype,), form.scales)
        scales = self._weight(f"{weight.name}.{kind.name}.scales", source, dtype)
        scales.shape = kind.scales_shape(form.rows, form.columns, form.block)
        return data, scales

    def _offsets(self, weight: Weight, form: _Form) -> Weight:
        """What is added to the weights of each block."""
        assert form.offsets is not None
        dtype = weight.dtype or "f32"
        source = form.offsets if dtype == "f32" else Step("cast", (dtype,), form.offsets)
        found = self._weight(f"{weight.name}.{form.format.name}.offsets", source, dtype)
        found.shape = form.rows, form.columns // form.block
        return found

    def _weight(self, name: str, source: WeightExpr, dtype: str) -> Weight:
        key = (source, dtype)
        if key not in self._made:
            self._made[key] = Weight(self._names.fresh(name), dtype, source=source)
        return self._made[key]

    def _integers(self, number: int) -> Constant:
        name = self._names.fresh("bound")
        return Constant(name, "i64", (1,), array=np.array([number], np.int64))


def _sizes(weight: Weight) -> tuple[int, int]:
    return cast("tuple[int, int]", weight.shape)
