"""Graphs to one Relax module: a function for every entry, and the kernels that they share.

A kernel is a function that makes a TensorIR `PrimFunc` for given sizes. Equal calls of one kernel are one PrimFunc, so
that twelve equal layers are compiled once.

A function takes the inputs of the part, then its states, then its weights, and returns its outputs as a tuple; states
are changed in place and not returned.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import FrameType
from typing import Any

from tvm import relax
from tvm.script.parser.core import doc
from tvm.script.parser.core.diagnostics import Source

from partc.errors import InternalError, UserError
from partc.ir.graph import Constant, Graph, Node, Value, Weight
from partc.ir.types import BY_SHORT
from targets.tvm.blocks import Block, blocks_of
from targets.tvm.layout import packed_shape

Expr = Any
"""A Relax expression; TVM has no type hints to speak of."""
Kernel = Callable[..., Any]
"""Sizes → PrimFunc."""
Emitter = Callable[["FunctionBuilder", Node, "list[Expr]"], "Expr | list[Expr]"]
"""Writes what a node computes, given its operands (None for one that is left out): one expression per output."""

_OPAQUE = 8
"""TVM's number for code that nothing may be fused into: a kernel is written as it should stay."""
_MOST = 1024
"""Kernels that are kept for later devices."""
_MOST_NUMBERS = 2**31 - 1
"""Numbers of a tensor that a kernel takes: it counts places in 32 bits, which is faster."""


class ModuleBuilder:
    """Collects the functions of one library."""

    def __init__(self, emitters: Mapping[str, Emitter], packed: frozenset[str]) -> None:
        """`emitters`: by operator; `packed`: names of the weights that are stored in panels (`layout.py`)."""
        self.relax = relax.BlockBuilder()
        self.emitters = emitters
        self.packed = packed
        self.opset = 0
        """Version of the standard operators in the graph that is being written."""
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self._blocks: dict[Hashable, Any] = {}

    def add(self, name: str, graph: Graph, parameters: Sequence[Value]) -> None:
        """Add the static `graph` as a function; `parameters` are its inputs, states and weights in order."""
        self.opset = graph.opset
        blocks = [(block, self._function_of(block)) for block in blocks_of(graph)]

        def write(function: FunctionBuilder) -> None:
            for block, callee in blocks:
                function.call_block(callee, block)

        self._add(name, parameters, graph.outputs, write)

    def _function_of(self, block: Block) -> Any:
        """The function that computes a block, the same for equal ones."""
        key = (self.opset, block.signature, tuple(self.is_packed(value) for value in block.inputs))
        if key not in self._blocks:
            name = f"block_{len(self._blocks)}"
            self._blocks[key] = self._add(
                name, block.inputs, block.outputs, lambda f: f.emit_nodes(block.nodes)
            )
        return self._blocks[key]

    def _add(
        self,
        name: str,
        parameters: Sequence[Value],
        outputs: Sequence[Value],
        write: Callable[[FunctionBuilder], None],
    ) -> Any:
        function = FunctionBuilder(self)
        variables = [function.parameter(value) for value in parameters]
        with self.relax.function(name, variables):
            try:
                with self.relax.dataflow():
                    write(function)
                    results = relax.Tuple([function.expr(value) for value in outputs])
                    output = self.relax.emit_output(results)
            except UserError:
                self.relax._end_block()  # else TVM prints a warning beside the error
                raise
            return self.relax.emit_func_output(output)

    def is_packed(self, value: Value | None) -> bool:
        """Whether this is a weight that is stored in panels."""
        return isinstance(value, Weight) and value.name in self.packed

    def kernel(self, make: Kernel, sizes: tuple[Any, ...]) -> Any:
        """The PrimFunc of a kernel for these sizes, made once."""
        key = (make, sizes)
        if key not in self._kernels:
            self._kernels[key] = self.relax.add_func(_made(make, sizes), make.__name__)
        return self._kernels[key]

    def finish(self) -> Any:
        """The `tvm.IRModule`."""
        return self.relax.finalize()


@lru_cache(_MOST)
def _made(make: Kernel, sizes: tuple[Any, ...]) -> Any:
    """The PrimFunc of a kernel for these sizes; devices of one build share it, since parsing it takes up to 0.2 s."""
    with _quick_parser():
        function = make(*sizes)
    _check_places(function)
    return function.with_attr("op_pattern", _OPAQUE)


def _check_places(function: Any) -> None:
    """Refuse tensors with a place that has no number of 32 bits: it would be taken for one before the tensor."""
    for tensor in function.params:
        shape = [int(size) for size in tensor.shape]
        if math.prod(shape) > _MOST_NUMBERS:
            raise UserError(
                f"{tensor.dtype}{shape} has more than the {_MOST_NUMBERS} numbers that kernels of the tvm target count",
                hint="write a smaller max_batch or max_sequence in model.yaml, or use `target: ort` for this device",
            )


@contextlib.contextmanager
def _quick_parser() -> Iterator[None]:
    """Let TVM's parser do no work that it has done before: a quarter of the time that it takes for a kernel.

    It looks for names in the frames of its callers, and `inspect` would find the file of each and read it. And it
    would parse a macro anew for every call of it.
    """

    def of_frame(frame: FrameType, context: int = 1) -> inspect.Traceback:
        return inspect.Traceback(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)

    with (
        _replaced(inspect, "getframeinfo", of_frame),
        _replaced(Source, "as_ast", lambda source: _parsed(source.source)),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    found = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, found)


@cache
def _parsed(source: str) -> Any:
    """The syntax tree of a kernel or macro, which the parser only reads."""
    return doc.parse(source)


class FunctionBuilder:
    """Writes one function, node by node; what emitters get to work with."""

    def __init__(self, module: ModuleBuilder) -> None:
        self._module = module
        self._exprs: dict[Value, Expr] = {}

    @property
    def opset(self) -> int:
        """Version of the standard operators in the graph that is being written."""
        return self._module.opset

    def parameter(self, value: Value) -> Expr:
        """The variable that stands for an input, a state or a weight; a packed weight has the shape of its panels."""
        shape = packed_shape(value) if self.is_packed(value) else value.shape  # type: ignore[arg-type]
        self._exprs[value] = relax.Var(value.name, tensor_type(shape, value.dtype))
        return self._exprs[value]

    def is_packed(self, value: Value | None) -> bool:
        """Whether this is a weight that is stored in panels."""
        return self._module.is_packed(value)

    def expr(self, value: Value) -> Expr:
        """The expression of a value that has been made, or of a constant."""
        if value not in self._exprs and isinstance(value, Constant) and value.array is not None:
            self._exprs[value] = relax.const(value.array, str(value.array.dtype))
        if value not in self._exprs:
            raise InternalError(f"%{value.name} is used before it is made")
        return self._exprs[value]

    def emit(self, expression: Expr) -> Expr:
        """Bind an expression to a variable."""
        return self._module.relax.emit(expression)

    def call(self, make: Kernel, operands: Sequence[Expr], result: Any, *sizes: Any) -> Expr:
        """The result of a kernel: a new tensor of the Relax type `result`."""
        function = self._module.kernel(make, sizes)
        return self.emit(relax.op.call_tir(function, list(operands), result))

    def update(self, make: Kernel, operands: Sequence[Expr], result: Any, *sizes: Any) -> Expr:
        """The first operand, which the kernel changes in place."""
        function = self._module.kernel(make, sizes)
        return self.emit(relax.op.call_tir_inplace(function, list(operands), [0], result))

    def update_and_call(
        self, make: Kernel, operands: Sequence[Expr], results: Sequence[Any], *sizes: Any
    ) -> list[Expr]:
        """The first operands, which the kernel changes in place, and a new tensor; `results` are their Relax types."""
        function = self._module.kernel(make, sizes)
        places = [*range(len(results) - 1), -1]
        all_ = self.emit(relax.op.call_tir_inplace(function, list(operands), places, list(results)))
        return [self.emit(relax.TupleGetItem(all_, place)) for place in range(len(results))]

    def call_block(self, callee: Any, block: Block) -> None:
        """Call the function of a block."""
        results = self.emit(relax.Call(callee, [self.expr(value) for value in block.inputs]))
        for place, value in enumerate(block.outputs):
            self._exprs[value] = self.emit(relax.TupleGetItem(results, place))

    def emit_nodes(self, nodes: Sequence[Node]) -> None:
        """Write nodes one after the other."""
        for node in nodes:
            self.emit_node(node)

    def emit_node(self, node: Node) -> None:
        """Write a node with the emitter of its operator; what that refuses is refused at the node."""
        operands = [None if value is None else self.expr(value) for value in node.inputs]
        try:
            made = self._module.emitters[node.op](self, node, operands)
        except UserError as error:
            error.where = error.where or node.place
            raise
        results = made if isinstance(made, list) else [made]
        for value, expression in zip(node.outputs, results, strict=False):
            self._exprs[value] = self.emit(expression)


def tensor_type(shape: Sequence[Any] | None, dtype: str | None) -> Any:
    """The Relax type of a tensor; `dtype` is the IR's short name."""
    return relax.TensorType([int(size) for size in shape or ()], BY_SHORT[dtype or ""].long)


def type_of(value: Value) -> Any:
    """The Relax type of a value of a static graph."""
    return tensor_type(value.shape, value.dtype)
