"""The description of an operator: signature, attributes, formula, effect, costs and reference in one entry.

A signature names sizes: `query T[batch, heads, rows, d]`. A name stands for the same number wherever it occurs, `T`,
`I`, `M` and `C` for the same element type (`TYPES`). `...` is any number of leading sizes, `1` is 1, `1|keys` is 1 or
`keys`, and a size may be computed from others: `2*blocks*half`, `kernel-1`. The sizes of results, the checks of
operands, the room of states and the text of docs/operators.md all follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partc.format.dims import evaluate, symbols
from partc.format.state_kinds import USUAL, StateKind
from partc.ir.graph import Attribute, Node, State, Value
from partc.ir.weights import Array
from partc.ir.workload import Step

Sizes = tuple[int, ...]
TypedSizes = tuple[str, Sizes]
"""Element type and shape of a tensor whose symbols have values."""

FLOATS = ("f64", "f32", "f16", "bf16")
TYPES: Mapping[str, tuple[str, ...]] = {
    "T": FLOATS,
    "I": ("i64", "i32"),
    "M": ("bool", *FLOATS),
    "C": ("i8", *FLOATS),
}
"""Names that stand for one of several element types."""


class MismatchError(ValueError):
    """Operands do not fit a signature; the text names the operand."""


@dataclass(frozen=True)
class Tensor:
    """An operand or a result in a signature."""

    name: str
    dtype: str
    """An element type of the IR, or a name of `TYPES`."""
    sizes: str
    """`batch, heads, rows, d`."""
    meaning: str
    optional: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """The sizes, one by one."""
        return tuple(dim.strip() for dim in self.sizes.split(","))


@dataclass(frozen=True)
class Signature:
    """Operands and results of one form of an operator."""

    operands: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    repeated: tuple[Tensor, ...] = ()
    """Operands that follow the others, as a group, any number of times."""
    where: Mapping[str, int] = field(default_factory=dict)
    """Attributes that choose this form."""

    def of_places(self, count: int) -> tuple[Tensor, ...]:
        """The tensors at the first `count` places, and those that could follow.

        Raises:
            MismatchError: there are too many, or the last group is not complete.
        """
        more = count - len(self.operands)
        if not self.repeated or more <= 0:
            if more > 0:
                raise MismatchError(f"it takes {len(self.operands)} operands, not {count}")
            return self.operands
        groups, rest = divmod(more, len(self.repeated))
        if rest:
            names = " and ".join(tensor.name for tensor in self.repeated)
            raise MismatchError(f"its last operands are {names}, again and again; one is missing")
        return self.operands + self.repeated * groups

    def sizes(self, operands: Sequence[TypedSizes | None]) -> list[TypedSizes]:
        """Element types and shapes of the results.

        Raises:
            MismatchError: the operands do not fit.
        """
        found = self._bound(operands)
        return [(found.dtype(result), found.shape(result)) for result in self.results]

    def state_sizes(self, place: int, operands: Sequence[TypedSizes | None], max_sequence: int) -> TypedSizes:
        """Element type and shape of the state at `place`, by what the other operands are.

        Raises:
            MismatchError: the operands do not fit, or leave a size open.
        """
        others = [None if index == place else operand for index, operand in enumerate(operands)]
        found = self._bound(others, absent=place)
        found.numbers.setdefault("max_sequence", max_sequence)
        state = self.operands[place]
        return found.dtype(state), found.shape(state)

    def _bound(self, operands: Sequence[TypedSizes | None], absent: int = -1) -> _Bindings:
        found = _Bindings()
        expected = self.of_places(len(operands))
        given = [*operands, *[None] * (len(expected) - len(operands))]
        for place, (tensor, operand) in enumerate(zip(expected, given, strict=True)):
            if operand is not None:
                found.bind(tensor, operand)
            elif not tensor.optional and place != absent:
                raise MismatchError(f"its operand {tensor.name} is missing")
        found.check_computed()
        return found


class _Bindings:
    """The numbers and element types that names of a signature stand for."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._leading: Sizes | None = None
        self._computed: list[tuple[Tensor, TypedSizes, str, int]] = []
        """Sizes that follow from others: the tensor, the operand, the expression and the size that it has."""

    def bind(self, tensor: Tensor, operand: TypedSizes) -> None:
        """Take what `operand` says of the names of `tensor`."""
        dtype, shape = operand
        if not self._fits(tensor, dtype, shape):
            raise self._mismatch(tensor, operand)
        plain = tensor.dims[1:] if tensor.dims[0] == "..." else tensor.dims
        sizes = zip(plain, shape[len(shape) - len(plain) :], strict=True)
        self._computed += [(tensor, operand, dim, size) for dim, size in sizes if _is_computed(dim)]

    def check_computed(self) -> None:
        """Make sure of the sizes that follow from others, once all operands are bound."""
        for tensor, operand, dim, size in self._computed:
            if symbols(dim) <= self.numbers.keys() and evaluate(dim, self.numbers) != size:
                raise self._mismatch(tensor, operand)

    def _mismatch(self, tensor: Tensor, operand: TypedSizes) -> MismatchError:
        dtype, shape = operand
        known = ", ".join(f"{name} = {n}" for name, n in self.numbers.items() if name in tensor.sizes)
        return MismatchError(
            f"its operand {tensor.name} is {dtype}{list(shape)}, not {tensor.dtype}[{tensor.sizes}]"
            + (f" with {known}" if known else "")
        )

    def _fits(self, tensor: Tensor, dtype: str, shape: Sizes) -> bool:
        allowed = TYPES.get(tensor.dtype, (tensor.dtype,))
        if dtype not in allowed or self._types.setdefault(tensor.dtype, dtype) != dtype:
            return False
        dims = tensor.dims
        if dims[0] == "...":
            split = len(shape) - (len(dims) - 1)
            if split < 0 or self._leading not in (None, shape[:split]):
                return False
            self._leading, shape, dims = shape[:split], shape[split:], dims[1:]
        return len(shape) == len(dims) and all(map(self._fits_dim, dims, shape))

    def _fits_dim(self, dim: str, size: int) -> bool:
        one, _, name = dim.rpartition("|")
        if one and size == 1:
            return True
        if name == "1":
            return size == 1
        if _is_computed(dim):
            return True
        return self.numbers.setdefault(name, size) == size

    def dtype(self, tensor: Tensor) -> str:
        return self._types.get(tensor.dtype, tensor.dtype)

    def shape(self, tensor: Tensor) -> Sizes:
        dims = tensor.dims
        leading = (self._leading or ()) if dims[0] == "..." else ()
        try:
            return (*leading, *(evaluate(dim, self.numbers) for dim in dims if dim != "..."))
        except KeyError as error:
            raise MismatchError(f"the size {error} of {tensor.name} is not known") from error


def _is_computed(dim: str) -> bool:
    return any(sign in dim for sign in "+-*/")


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute of an operator."""

    name: str
    kind: type[int] | type[float]
    default: int | float | None
    """None: it must be given."""
    meaning: str


@dataclass(frozen=True)
class StateWrite:
    """A state that an operator changes."""

    operand: int
    """Place of the state among the operands."""
    result: int
    """Place of its new contents among the results."""
    kind: StateKind = USUAL
    """The part of it that a step writes, as `State.kind`."""


@dataclass(frozen=True)
class Operator:
    """One operator of the `partc` domain. No field has a default, so that nothing can be left out."""

    name: str
    """Name with its domain: `partc.Attention`."""
    summary: str
    signatures: tuple[Signature, ...]
    """More than one where attributes choose between forms."""
    attributes: tuple[AttributeSpec, ...]
    formula: str
    """The formula, as plain text."""
    writes: tuple[StateWrite, ...]
    """The effect: states that it changes; one that changes none is pure, and may be merged, repeated and dropped."""
    flops: Callable[[Node, Step], int]
    """Floating-point operations in one step."""
    moved_bytes: Callable[[Node, Step], int]
    """Bytes that one step reads and writes: operands, results, the valid rows of states."""
    scratch_bytes: Callable[[Node, Step], int]
    """Bytes that one step needs besides operands and results."""
    reference: Callable[[Sequence[Array | None], Mapping[str, int | float]], list[Array]]
    """The results in numpy, for all operands of the signature and all attributes; states are not changed in place."""

    def signature(self, attributes: Mapping[str, Attribute]) -> Signature:
        """The first form that these attributes choose.

        Raises:
            MismatchError: they choose none.
        """
        defaults = {spec.name: spec.default for spec in self.attributes}
        for signature in self.signatures:
            if all(attributes.get(name, defaults.get(name)) == n for name, n in signature.where.items()):
                return signature
        chosen = {name: attributes.get(name) for s in self.signatures for name in s.where}
        raise MismatchError(f"there is no form of it with {chosen}")

    def numbers(self, attributes: Mapping[str, Attribute]) -> dict[str, int | float]:
        """All attributes, with the defaults of those that are left out; others are not looked at.

        Raises:
            MismatchError: one is missing or of another kind.
        """
        return {spec.name: _number(spec, attributes.get(spec.name, spec.default)) for spec in self.attributes}

    def check(self, node: Node) -> None:
        """Make sure that a node is one of this operator, as far as its values need no sizes for that.

        Raises:
            MismatchError: operands are missing or too many, attributes do not fit, or a state is none.
        """
        self.numbers(node.attributes)
        if unknown := node.attributes.keys() - {spec.name for spec in self.attributes}:
            raise MismatchError(f"it has no attribute {min(unknown)}")
        signature = self.signature(node.attributes)
        expected = signature.of_places(len(node.inputs))
        given = [*node.inputs, *[None] * (len(expected) - len(node.inputs))]
        for tensor, value in zip(expected, given, strict=True):
            if value is None and not tensor.optional:
                raise MismatchError(f"its operand {tensor.name} is missing")
        if len(node.outputs) != len(signature.results):
            raise MismatchError(f"it has {len(signature.results)} results, not {len(node.outputs)}")
        for write in self.writes:
            if not isinstance(node.inputs[write.operand], State):
                raise MismatchError(f"its operand {expected[write.operand].name} is no state")

    def updates(self, node: Node) -> Iterator[tuple[State, Value]]:
        """The states that a node of this operator changes, each with the value that is its new contents."""
        for write in self.writes:
            state = node.inputs[write.operand]
            if isinstance(state, State):
                yield state, node.outputs[write.result]

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results of the reference for a node with these operands."""
        places = len(self.signature(node.attributes).of_places(len(operands)))
        whole = [*operands, *[None] * (places - len(operands))]
        return self.reference(whole, self.numbers(node.attributes))


def _number(spec: AttributeSpec, value: Attribute | None) -> int | float:
    if type(value) is int or (spec.kind is float and type(value) is float):
        return spec.kind(value)
    problem = "is missing" if value is None else f"is {value!r}, which is no {spec.kind.__name__}"
    raise MismatchError(f"its attribute {spec.name} {problem}")
