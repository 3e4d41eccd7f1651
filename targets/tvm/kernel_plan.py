"""Lowered Relax to a kernel plan: functions flattened to calls of kernels, and their tensors laid out in one arena.

After `pipeline.py` a function only allocates tensors, makes views of them, and calls kernels and other functions. All
sizes are numbers and there are no branches, so what a virtual machine would decide at run time is known here: calls of
functions are written out, every tensor gets its place, and the device has a list of kernels to go through. Kernels
are named in the order of their first use, so that equal parts of two devices have kernels of one name.

The arena: a tensor lives from the call that writes it to the last one that reads it. Largest first, each tensor takes
the lowest offset where no other one lies that lives at the same time (first fit; "greedy by size" in Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020). Ours aligns to cache lines. O(tensors²).
"""

from __future__ import annotations

import re
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst
from tvm.tirx import BufferStore, DeclBuffer, PrimFunc
from tvm_ffi import structural_walk

from partc.errors import InternalError
from partc.format.kernel_plan import (
    Access,
    Kernel,
    KernelCall,
    KernelConstant,
    KernelFunction,
    KernelOutput,
    KernelParameter,
    KernelPlan,
    KernelTensor,
    Place,
)
from partc.format.kernel_plan_rules import plan_problems
from partc.format.layouts import ALIGNMENT

_NUMBER = re.compile(r"\d+(?=_|$)")
_Value = Any
"""A `_Tensor`, or a tuple of values."""


def plan_of(
    module: Any, functions: Iterable[str], alignment: int = ALIGNMENT
) -> tuple[KernelPlan, dict[str, Any]]:
    """The plan of these functions of a lowered `tvm.IRModule`, and its kernels by name; O(calls + tensors²).

    Tensors of the arena lie at multiples of `alignment`, bytes. What a kernel takes beyond what it is called with is
    scratch memory, which gets a place in the arena for that call.

    Raises:
        InternalError: a function does what no plan can say; names it.
    """
    named = {name.name_hint: function for name, function in module.functions.items()}
    planner = _Planner(named, alignment)
    flat = {name: planner.function(name) for name in functions}
    plan = KernelPlan(kernels=planner.kernels, constants=tuple(planner.constants), functions=flat)
    for problem in plan_problems(plan):
        raise InternalError(f"the kernel plan is not right: {problem}")
    return plan, planner.code


def lay_out(lives: Sequence[Life]) -> int:
    """Give every tensor its offset in the arena; returns its size, bytes."""
    placed: list[Life] = []
    for life in sorted(lives, key=lambda life: -life.bytes):
        life.offset = 0
        for other in placed:  # by offset
            if life.meets(other):
                if life.offset + life.bytes <= other.offset:
                    break
                life.offset = max(life.offset, other.end)
        insort(placed, life, key=lambda life: life.offset)
    return max((life.offset + (life.used or life.bytes) for life in lives), default=0)


@dataclass(slots=True)
class Life:
    """A tensor of the arena, from the call that writes it to the last one that reads it."""

    bytes: int
    """Its room, a multiple of the alignment."""
    first: int
    """Number of the call that writes it."""
    last: int
    """Number of the last call that needs it."""
    used: int = 0
    """The bytes that it has of its room, in whole cache lines; 0: all. The arena ends with the last of them."""
    offset: int = 0

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.bytes

    def meets(self, other: Life) -> bool:
        """Whether a call needs both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of one function; a view of it differs in its shape."""

    place: Place
    """In the arena, `at` is its number until it has an offset."""
    dtype: str
    shape: tuple[int, ...]

    @property
    def type(self) -> KernelTensor:
        return KernelTensor(self.dtype, self.shape)


class _Planner:
    """The kernels and constants that the functions of a library share."""

    def __init__(self, functions: Mapping[str, Any], alignment: int) -> None:
        self.alignment = alignment
        self._functions = functions
        """The functions of the module: those of Relax, and kernels."""
        self.kernels: dict[str, Kernel] = {}
        self.code: dict[str, Any] = {}
        """Kernel → its PrimFunc, which has this name as its symbol."""
        self._names: dict[str, str] = {}
        """Name in the module → name in the plan."""
        self._used: Counter[str] = Counter()
        """Name without numbers → kernels that have it."""
        self.constants: dict[KernelConstant, int] = {}
        """Constant → its number."""

    def function(self, name: str) -> KernelFunction:
        return _Flattener(self).flatten(self._functions[name])

    def callee(self, name: str) -> Any:
        return self._functions[name]

    def constant(self, value: Any) -> _Tensor:
        """A constant of a function as one of the plan."""
        array = value.numpy()
        constant = KernelConstant(str(value.dtype), tuple(array.shape), array.tobytes())
        number = self.constants.setdefault(constant, len(self.constants))
        return _Tensor(Place("constant", number), constant.dtype, constant.shape)

    def kernel(self, function: Any, are_new: Sequence[bool]) -> str:
        """The name of a kernel, which is described when it is new; `are_new`: the tensors that it is to make."""
        symbol = str(function.attrs["global_symbol"])
        if symbol not in self._names:
            self._names[symbol] = name = self._fresh_name(symbol)
            self.kernels[name] = _described(name, function, are_new)
            self.code[name] = function.with_attr("global_symbol", name)
        name = self._names[symbol]
        if [parameter.access == "write" for parameter in self.kernels[name].parameters] != list(are_new):
            raise InternalError(f"the kernel {name} makes a tensor here, and changes it there")
        return name

    def _fresh_name(self, symbol: str) -> str:
        """The symbol without the numbers that TVM gives; those of kernels of one name count from 1."""
        name = _NUMBER.sub("", symbol)
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}_{self._used[name] - 1}"


def _described(name: str, function: Any, are_new: Sequence[bool]) -> Kernel:
    if any(not hasattr(parameter, "shape") for parameter in function.params):
        raise InternalError(f"a kernel plan has tensors alone, and the kernel {name} takes something else")
    changed = _changed(function)
    accesses: list[Access] = [
        "write" if is_new else "update" if buffer in changed else "read"
        for buffer, is_new in zip(function.params, are_new, strict=True)
    ]
    return Kernel(
        tuple(
            KernelParameter(str(buffer.dtype), _sizes(buffer.shape), access)
            for buffer, access in zip(function.params, accesses, strict=True)
        )
    )


def _changed(function: Any) -> set[Any]:
    """The buffers that a kernel stores to, itself or through a view."""
    stored: set[Any] = set()
    whole: dict[Any, Any] = {}
    structural_walk(
        function.body,
        [
            (BufferStore, lambda store: stored.add(store.buffer)),
            (DeclBuffer, lambda view: whole.update({view.buffer: view.data.args[0]})),
        ],
    )
    return {whole.get(buffer, buffer) for buffer in stored}


class _Flattener:
    """One function, while its calls are written out."""

    def __init__(self, planner: _Planner) -> None:
        self._planner = planner
        self._calls: list[tuple[str, list[_Tensor]]] = []
        self._lives: dict[int, Life] = {}
        """The tensors of the arena by number, as soon as a call has written them."""
        self._numbers = count()

    def flatten(self, function: Any) -> KernelFunction:
        """The function as calls of kernels alone."""
        parameters = [
            _tensor(Place("parameter", number), variable.ty)
            for number, variable in enumerate(function.params)
        ]
        outputs = self._body(function, parameters)
        self._keep(outputs)
        arena_bytes = lay_out(list(self._lives.values()))
        return KernelFunction(
            parameters=tuple(tensor.type for tensor in parameters),
            arena_bytes=arena_bytes,
            calls=tuple(KernelCall(name, tuple(map(self._placed, tensors))) for name, tensors in self._calls),
            outputs=tuple(KernelOutput(out.dtype, out.shape, self._placed(out)) for out in outputs),
        )

    def _placed(self, tensor: _Tensor) -> Place:
        in_arena = tensor.place.room == "arena"
        return Place("arena", self._lives[tensor.place.at].offset) if in_arena else tensor.place

    def _body(self, function: Any, arguments: Sequence[_Value]) -> _Value:
        """Write out the calls of a function of Relax; its result."""
        values = dict(zip(function.params, arguments, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self._value(binding.value, values)
        return self._value(function.body.body, values)

    def _value(self, expression: Any, values: Mapping[Any, _Value]) -> _Value:
        match expression:
            case relax.Var():
                return values[expression]
            case GenericConst():
                return self._planner.constant(expression.value)
            case relax.Tuple():
                return tuple(self._value(field, values) for field in expression.fields)
            case relax.TupleGetItem():
                return self._value(expression.tuple_value, values)[expression.index]
            case relax.Call(op=relax.GlobalVar() as callee):
                return self._call(callee, [self._value(argument, values) for argument in expression.args])
            case relax.Call(op=Op(name="relax.builtin.alloc_tensor")):
                return _tensor(Place("arena", next(self._numbers)), expression.ty)
            case relax.Call(op=Op(name="relax.reshape")):
                whole = self._value(expression.args[0], values)
                return replace(whole, shape=_sizes(expression.ty.shape.values))
            case _:
                raise InternalError(f"a kernel plan has no {type(expression).__name__}: {expression}")

    def _call(self, variable: Any, arguments: list[_Value]) -> _Value:
        callee = self._planner.callee(variable.name_hint)
        if not isinstance(callee, PrimFunc):
            return self._body(callee, arguments)
        arguments = [*arguments, *map(self._scratch, callee.params[len(arguments) :])]
        self._calls.append((self._planner.kernel(callee, [self._is_new(x) for x in arguments]), arguments))
        self._keep(arguments)
        return None

    def _scratch(self, buffer: Any) -> _Tensor:
        return _Tensor(Place("arena", next(self._numbers)), str(buffer.dtype), _sizes(buffer.shape))

    def _is_new(self, tensor: _Tensor) -> bool:
        """Whether nobody has written it: an allocated tensor is first given to the kernel that makes it."""
        return tensor.place.room == "arena" and tensor.place.at not in self._lives

    def _keep(self, tensors: Sequence[_Tensor]) -> None:
        """Let these tensors live until the last call so far; behind that, until the function ends."""
        last = len(self._calls) - 1
        for tensor in tensors:
            if tensor.place.room == "arena":
                used = _rounded(tensor.type.bytes, ALIGNMENT)
                life = Life(_rounded(used, self._planner.alignment), last, last, used)
                self._lives.setdefault(tensor.place.at, life).last = last


def _tensor(place: Place, kind: Any) -> _Tensor:
    """A tensor of a type of Relax."""
    return _Tensor(place, str(kind.dtype), _sizes(kind.shape.values))


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _sizes(sizes: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)
