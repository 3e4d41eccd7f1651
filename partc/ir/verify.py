"""Whether a module is legal: one specification per stage of the pipeline.

| stage | holds |
| --- | --- |
| `imported` | every operand is defined before its use, names are unique, every leaf has its contents |
| `sized` | also: every value has an element type and a shape |
| `formed` | also: sub-modules are consecutive intervals that cover the graph once, behind the nodes that all share |
| `mapped` | also: SDM joins neighbours, RDM skips at least one, and both name values that really cross |
| `split` | also: every part is legal, and every value that a part needs is sent to it |
"""

from __future__ import annotations

from collections.abc import Callable

from partc.errors import InternalError
from partc.ir.graph import Constant, Graph, Input, Module, State, Value, Weight


def verify(module: Module, stage: str) -> None:
    """Check all specifications up to `stage`.

    Raises:
        InternalError: the first one that does not hold, with the value or node that breaks it.
    """
    for name, specification in SPECIFICATIONS.items():
        specification(module)
        if name == stage:
            return
    raise InternalError(f"unknown stage {stage!r}")


def verify_graph(graph: Graph) -> None:
    """Check the specification `imported` of one graph."""
    _check_names(graph)
    defined: set[Value] = set(graph.inputs)
    for node in graph.nodes:
        for value in node.operands:
            if value not in defined and not isinstance(value, Weight | Constant | State):
                raise InternalError(f"%{value.name} is used before it is made", where=f"node {node.name}")
        for output in node.outputs:
            if output.producer is not node:
                raise InternalError(f"%{output.name} names another producer", where=f"node {node.name}")
        defined.update(node.outputs)
    for value in graph.outputs:
        if value not in defined and not isinstance(value, Weight | Constant):
            raise InternalError(f"output %{value.name} is never made", where=f"graph {graph.name}")


def _check_names(graph: Graph) -> None:
    seen: set[str] = set()
    for value in graph.values():
        if value.name in seen:
            raise InternalError(f"two values are called %{value.name}", where=f"graph {graph.name}")
        seen.add(value.name)
        if isinstance(value, Weight) and value.source is None:
            raise InternalError(f"weight %{value.name} has no source", where=f"graph {graph.name}")
        if isinstance(value, Constant) and value.array is None:
            raise InternalError(f"constant %{value.name} has no values", where=f"graph {graph.name}")


def _imported(module: Module) -> None:
    verify_graph(module.graph)


def _sized(module: Module) -> None:
    for value in module.graph.values():
        if value.dtype is None or value.shape is None:
            kind = type(value).__name__.lower()
            raise InternalError(f"{kind} %{value.name} has no size", where=_place(value))


def _place(value: Value) -> str:
    if value.producer is None:
        return value.name
    return f"node {value.producer.name} ({value.producer.op}) @ {value.producer.scope}"


def _formed(module: Module) -> None:
    if module.submodules is None:
        raise InternalError("no sub-modules have been formed")
    covered = [node for submodule in module.submodules for node in submodule.nodes]
    shared = module.graph.nodes[: len(module.graph.nodes) - len(covered)]
    if [*shared, *covered] != module.graph.nodes:
        raise InternalError("the sub-modules do not cover the graph once, in order")
    for node in shared:
        for value in node.operands:
            if isinstance(value, Input) and not value.is_step:
                raise InternalError(f"a shared node reads %{value.name}", where=f"node {node.name}")


def _mapped(module: Module) -> None:
    if module.sdm is None or module.rdm is None or module.submodules is None:
        raise InternalError("no dependency maps")
    home = {node: s.index for s in module.submodules for node in s.nodes}
    readers = module.graph.consumers()
    for (source, target), values in [*module.sdm.items(), *module.rdm.items()]:
        for value in values:
            made = 0 if isinstance(value, Input) else home.get(value.producer, -1) if value.producer else -1
            if made != source or not any(home.get(node) == target for node in readers.get(value, [])):
                raise InternalError(f"%{value.name} does not cross from {source} to {target}")
    if any(source != target - 1 for source, target in module.sdm):
        raise InternalError("the SDM joins sub-modules that are no neighbours")
    if any(source >= target - 1 for source, target in module.rdm):
        raise InternalError("the RDM joins neighbours")


def _split(module: Module) -> None:
    if module.parts is None:
        raise InternalError("the graph has not been split")
    for part in module.parts:
        verify_graph(part.graph)


SPECIFICATIONS: dict[str, Callable[[Module], None]] = {
    "imported": _imported,
    "sized": _sized,
    "formed": _formed,
    "mapped": _mapped,
    "split": _split,
}
"""Stage → what must hold from there on, in the order of the pipeline."""
