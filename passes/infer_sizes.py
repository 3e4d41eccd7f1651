"""`infer-sizes`: give every value its element type and its shape in the graph's symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partc.errors import UserError
from partc.format.dims import symbols
from partc.ir.graph import Graph, Module, Node
from partc.ir.node_sizes import DEPENDS_ON_DATA
from partc.ir.sizes import Inferred, SizeInference, assign_sizes
from partc.pipeline.contract import Context, Pass


@dataclass(frozen=True)
class InferSizes(Pass):
    """Element types and symbolic shapes, from those of the inputs (`partc.ir.sizes`)."""

    name: ClassVar[str] = "infer-sizes"
    requires: ClassVar[str | None] = "imported"
    ensures: ClassVar[str | None] = "sized"

    def apply(self, module: Module, context: Context) -> bool:
        """Infer and write the sizes.

        Raises:
            UserError: a size depends on data, or an operator is unknown; names the node and the operator.
        """
        return infer_sizes(module)


def infer_sizes(module: Module) -> bool:
    """Write element type and shape into every value of the graph; True if any changed; O(nodes)."""
    inferred = SizeInference(module.graph, module.info).infer(module.graph)
    check_sizes(module.graph, inferred, module.info.task)
    return assign_sizes(module.graph, inferred)


def check_sizes(graph: Graph, inferred: Inferred, task: str) -> None:
    """Raise a UserError for the first value that has no size; in a graph of `task` graph, `dims` can fix sizes."""
    for value in graph.inputs:
        if value.dtype is None or value.shape is None:
            raise UserError(
                f"the input %{value.name} has no element type or no shape",
                where=f"graph {graph.name}",
                hint="export the model again with the shapes of its inputs",
            )
    for node in graph.nodes:
        if node in inferred.failures:
            raise _unknown(graph, node, inferred.failures[node], task)
        for output in node.outputs:
            if inferred.shape(output) is None and output.shape is None:
                why = "a size is no sum, product or quotient of the sizes of the inputs"
                raise _unknown(graph, node, why, task)


def _unknown(graph: Graph, node: Node, why: str, task: str) -> UserError:
    sizes = [symbol for value in graph.inputs for dim in value.shape or () for symbol in sorted(symbols(dim))]
    fixed = ", ".join(f"{symbol}: {{exactly: N}}" for symbol in dict.fromkeys(sizes))
    where_same = f"write dims: {{{fixed}}} in model.yaml where all requests have these sizes, or "
    return UserError(
        f"cannot infer the size of the output of {node.op}: {why}",
        where=node.place,
        hint="partc needs sizes that follow from those of the inputs; "
        f"{where_same if fixed and task == 'graph' and why != DEPENDS_ON_DATA else ''}"
        "export the model with fixed sizes there, or without this operator",
    )
