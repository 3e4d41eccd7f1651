"""Operators that the ONNX exporter does not know, taken apart one by one.

torch's `run_decompositions` traces the whole program twice more, which is most of the time that importing a deep model
takes. Here the operators of the exporter's table are traced, and composite ones that it may not keep, each alone, and
the trace is put in their place. Writes become computations: `add_` into a tensor that has no other name is `add`, and
one into a slice is put back into what was sliced. Programs with other writes, or with programs inside (`cond`, regions
without gradients), go through torch's own way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _is_preservable_cia_op
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from partc.frontend.trace.sizes import share_sizes

_aten = torch.ops.aten
_DROPOUTS = {
    _aten.dropout.default, _aten.feature_dropout.default,
    _aten.alpha_dropout.default, _aten.feature_alpha_dropout.default,
}  # fmt: skip
"""They take (tensor, probability, whether it is training)."""
_PUT_BACK = {_aten.slice.Tensor: _aten.slice_scatter.default, _aten.select.int: _aten.select_scatter.default}
"""View → what writes its values back into the tensor, with the same arguments."""

Table = dict[Any, Callable[..., Any]]
"""Operator → what computes the same by others."""


class _LeftToTorchError(Exception):
    """The program writes in another way, or has programs inside."""


def decompose_one_by_one(program: ExportedProgram) -> None:
    """Have `program.run_decompositions` take operators apart in place; a trace for each of them."""
    by_torch: Callable[[Table], ExportedProgram] = program.run_decompositions

    def run_decompositions(table: Table) -> ExportedProgram:
        module, graph = program.graph_module, program.graph_module.graph
        outputs_follow = module._set_replace_hook(program.graph_signature.get_replace_hook())
        try:
            with _mode(graph), enable_python_dispatcher(), outputs_follow:
                _leave_out_what_does_nothing(graph)
                _compute_writes(graph)
                _decompose(graph, table)
        except _LeftToTorchError:  # what was replaced until then computes the same
            return by_torch(table)
        share_sizes(graph)
        graph.eliminate_dead_code()
        module.recompile()
        return program

    setattr(program, "run_decompositions", run_decompositions)  # noqa: B010


def _leave_out_what_does_nothing(graph: Graph) -> None:
    """Replace by their operands what only names them again, without a word of it in its schema."""
    for node in list(graph.nodes):
        is_idle = node.target in _DROPOUTS and not node.args[2]
        if is_idle or node.target is _aten.detach_.default:
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)


def _compute_writes(graph: Graph) -> None:
    """Replace every write by operators that do not write.

    Raises:
        _LeftToTorchError: a write is of another kind, or there is a program inside.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            raise _LeftToTorchError
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            _compute_write(graph, node, node.target, places)


def _compute_write(graph: Graph, node: Node, target: OpOverload, places: dict[Node, int]) -> None:
    function, written = _without_write(target), node.all_input_nodes[0]
    if function is None or node.args[0] is not written or (node.users and written.target in _PUT_BACK):
        raise _LeftToTorchError
    with graph.inserting_before(node):
        computed = _call(graph, node, function, *node.args, **node.kwargs)
        if not _has_type_of(computed, written):
            raise _LeftToTorchError
        while written.target in _PUT_BACK:
            whole, view = written.all_input_nodes[0], written.args[1:]
            computed = _call(graph, node, _PUT_BACK[written.target], whole, computed, *view, **written.kwargs)
            written = whole
    if not _has_no_other_name(written, node, places):
        raise _LeftToTorchError
    place = places[computed] = places[node]
    node.replace_all_uses_with(computed)
    written.replace_all_uses_with(computed, lambda user: places.get(user, place) > place)
    graph.erase_node(node)


def _without_write(target: OpOverload) -> OpOverload | None:
    """`aten.add_.Tensor` → `aten.add.Tensor`; None where it writes no values, or nothing computes the same."""
    name = target._schema.name.removeprefix("aten::")
    if target.namespace != "aten" or not name.endswith("_") or torch.Tag.inplace_view in target.tags:
        return None
    found = getattr(getattr(_aten, name.removesuffix("_"), None), target._overloadname, None)
    # `pow_.Scalar` raises a tensor to a number, `pow.Scalar` a number to a tensor.
    takes_tensor = found is not None and str(found._schema.arguments[0].type) == "Tensor"
    return found if takes_tensor else None


def _has_no_other_name(tensor: Node, write: Node, places: Mapping[Node, int]) -> bool:
    """Whether `tensor` is memory of its own, and no view of it that was made before a write is read after it.

    `places` has no nodes that writes became, but the last of each: they are no views.
    """
    place = places[write]
    names = [tensor]
    for name in names:
        users = [user for user in name.users if places.get(user, place) < place]
        names += (user for user in users if _may_share(user))
    is_over = (places.get(user, place) <= place for name in names[1:] for user in name.users)
    return not _may_share(tensor) and all(is_over)


def _may_share(node: Node) -> bool:
    """Whether a result may be memory of an operand.

    Not all schemas say so: `_unsafe_view` returns its operand, and `type_as` may. Their values show it.
    """
    if node.target is operator.getitem:
        return _may_share(node.all_input_nodes[0])
    if not isinstance(node.target, OpOverload):
        return True
    says_so = any(each.alias_info is not None for each in node.target._schema.returns)
    return says_so or any(_memory(node) & _memory(each) for each in node.all_input_nodes)


def _memory(node: Node) -> set[int]:
    """What identifies the memory of a node's tensors."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return {each.untyped_storage()._cdata for each in values if isinstance(each, torch.Tensor)}


def _decompose(graph: Graph, table: Table) -> None:
    """Take apart what is in the table, and what it becomes."""
    nodes = list(graph.nodes)
    while nodes:
        node = nodes.pop()
        function = _decomposition(node.target, table)
        if function and not isinstance(node.meta["val"], torch.SymInt):
            nodes += _take_apart(graph, node, function)


def _decomposition(target: Any, table: Table) -> Callable[..., Any] | None:
    """How an operator is taken apart; None: it stays."""
    if not isinstance(target, OpOverload) or target in table:
        return table.get(target)
    return target.decompose if target._can_decompose() and not _is_preservable_cia_op(target) else None


def _take_apart(graph: Graph, node: Node, function: Callable[..., Any]) -> list[Node]:
    """Put the trace of a function in the place of a node; its nodes."""
    inputs: dict[Node, None] = {}
    map_arg((node.args, node.kwargs), lambda each: inputs.setdefault(each))

    def call(*values: Any) -> Any:
        found = dict(zip(inputs, values, strict=True))
        arguments, options = map_arg((node.args, node.kwargs), found.__getitem__)
        return function(*arguments, **options)

    inner = make_fx(call)(*map(_value, inputs)).graph
    _compute_writes(inner)
    inner.eliminate_dead_code()
    made = dict(zip((each for each in inner.nodes if each.op == "placeholder"), inputs, strict=True))
    with graph.inserting_before(node):
        result = graph.graph_copy(inner, made)
    new = [each for inside, each in made.items() if inside.op != "placeholder"]
    for each in new:
        each.meta = {**node.meta, "val": each.meta["val"]}
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):  # each takes one of the results
            user.replace_all_uses_with(result[user.args[1]])  # type: ignore[index, arg-type]
            graph.erase_node(user)
    graph.erase_node(node)
    return new


def _call(graph: Graph, origin: Node, target: Any, *arguments: Any, **options: Any) -> Node:
    """A call that takes the place of `origin`, with its value."""
    node = graph.call_function(target, arguments, options)
    values, named = map_arg((arguments, options), _value)
    node.meta = {**origin.meta, "val": target(*values, **named)}
    return node


def _has_type_of(node: Node, other: Node) -> bool:
    return all(getattr(_value(node), name) == getattr(_value(other), name) for name in ("dtype", "shape"))


def _mode(graph: Graph) -> FakeTensorMode:
    """The mode of all values.

    Raises:
        _LeftToTorchError: a program of no inputs has none.
    """
    values = (node.meta["val"] for node in graph.nodes if node.op == "placeholder")
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    if mode is None:
        raise _LeftToTorchError
    return mode


def _value(node: Node) -> Any:
    return node.meta["val"]
