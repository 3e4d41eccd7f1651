"""Whether a module is legal: one specification per stage of the pipeline.

| stage | holds |
| --- | --- |
| `imported` | every operand is defined before its use, names are unique, every leaf has its contents |
| `sized` | also: every value has an element type and a shape |
| `formed` | also: sub-modules are consecutive intervals that cover the graph once, behind the nodes that all share |
| `mapped` | also: SDM joins neighbours, RDM skips at least one, and both name values that really cross |
| `split` | also: every part is legal, every program runs it with values that are given, made or sent to it, and ends |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from partc.errors import InternalError
from partc.format.program import ONCE, Program, Run, kept_by
from partc.format.program_rules import Call, device_problems, ring_problems
from partc.ir.graph import STEP_INPUTS, Constant, Graph, Input, Module, Node, Part, State, Value, Weight
from partc.ir.operators import DOMAIN, OPERATORS
from partc.ir.operators.operator import MismatchError


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
                raise InternalError(f"%{value.name} is used before it is made", where=node.place)
        for output in node.outputs:
            if output.producer is not node:
                raise InternalError(f"%{output.name} names another producer", where=node.place)
        defined.update(node.outputs)
        _check_operator(node)
    for value in graph.outputs:
        if value not in defined and not isinstance(value, Weight | Constant):
            raise InternalError(f"output %{value.name} is never made", where=f"graph {graph.name}")


def _check_operator(node: Node) -> None:
    """A node of the `partc` domain has the operands, attributes and states that its entry in the table names."""
    if not node.op.startswith(f"{DOMAIN}."):
        return
    try:
        if node.op not in OPERATORS:
            raise MismatchError("there is no such operator")
        OPERATORS[node.op].check(node)
    except MismatchError as error:
        raise InternalError(str(error), where=node.place) from error


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
            where = value.name if value.producer is None else value.producer.place
            raise InternalError(f"{kind} %{value.name} has no size", where=where)


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
                raise InternalError(f"a shared node reads %{value.name}", where=node.place)


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
    devices = [part.device for part in module.parts]
    if twice := [name for place, name in enumerate(devices) if name in devices[:place]]:
        raise InternalError(f"{twice[0]} has two parts", where="split")
    for graph in (graph for part in module.parts for graph in part.graphs):
        verify_graph(graph)
    _check_ring(module, {part.device: part.programs for part in module.parts}, "")
    for lost in dict.fromkeys(lost for part in module.parts for lost in part.without):
        found = {part.device: part.without[lost] for part in module.parts if lost in part.without}
        _check_ring(module, found, f" without {lost}")


def _check_ring(module: Module, rings: Mapping[str, Mapping[str, Program]], when: str) -> None:
    """The programs of one placement, by device and phase."""
    parts = [part for part in module.parts or () if part.device in rings]
    source = parts[0].device
    for phase in dict.fromkeys(phase for programs in rings.values() for phase in programs):
        programs = {name: _program(found, phase, name, when) for name, found in rings.items()}
        for problem in ring_problems(programs, source):
            raise InternalError(f"{problem.device} {problem.message}", where=f"programs {phase}{when}")
        if not (module.plan and module.plan.answer.phases):
            _check_pieces(parts, programs, phase, f"programs {phase}{when}")
        for part in parts:
            given = {*STEP_INPUTS, *(_names(module.graph.inputs) if part.device == source else ())}
            if phase == "decode":
                given.update(kept_by(rings[part.device]["prefill"]))
            _check_program(part, programs[part.device], given, _place(phase, part.device, when))


def _place(phase: str, device: str, when: str) -> str:
    return f"program {phase}{when} of {device}"


def _program(programs: Mapping[str, Program], phase: str, device: str, when: str) -> Program:
    if phase not in programs:
        raise InternalError("there is none", where=_place(phase, device, when))
    return programs[phase]


def _check_program(part: Part, program: Program, given: set[str], where: str) -> None:
    """The program runs graphs of its part, with their inputs and outputs; a value that is read is there by then."""
    calls = {
        graph.name: Call(_names(graph.inputs), _names(graph.outputs), bool(graph.states()))
        for graph in part.graphs
    }
    for problem in device_problems(program, given, calls):
        raise InternalError(problem, where=where)


def _check_pieces(parts: Sequence[Part], programs: Mapping[str, Program], phase: str, where: str) -> None:
    """Every graph is run once, by one device, in the order in which it has them; not where devices share stages.

    What is computed once a request is missing behind the first step.
    """
    names = dict.fromkeys(graph.name for part in parts for graph in part.graphs)
    if phase == "decode":
        names = {name: None for name in names if not name.endswith(ONCE)}
    runs = [[item.submodule for item in program if isinstance(item, Run)] for program in programs.values()]
    count = Counter(name for some in runs for name in some)
    if odd := [name for name in names if count[name] != 1]:
        raise InternalError(f"they do not run {odd[0]} once", where=where)
    for part, some in zip(parts, runs, strict=True):
        if some != [graph.name for graph in part.graphs if graph.name in some]:
            raise InternalError(f"{part.device} runs its graphs in another order", where=where)


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)


SPECIFICATIONS: dict[str, Callable[[Module], None]] = {
    "imported": _imported,
    "sized": _sized,
    "formed": _formed,
    "mapped": _mapped,
    "split": _split,
}
"""Stage → what must hold from there on, in the order of the pipeline."""
