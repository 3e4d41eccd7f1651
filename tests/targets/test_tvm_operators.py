"""Every operator of the tvm target against the reference that comes with onnx; all cases are one library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from partc.format.kernel_plan import kernel_plan_text
from partc.ir.evaluate import node_proto
from partc.ir.graph import Attribute, Constant, Graph, Input, Node, Value
from partc.ir.operators import QUANTIZE_ROWS
from partc.ir.types import BY_NUMPY
from tests.runtime.engines.hostile import check_kernels
from tests.targets.numpy_attention import Array, attention, update

pytestmark = [pytest.mark.tvm, pytest.mark.in_turns(6, whole=True)]
tvm = pytest.importorskip("tvm")

F32, I64 = np.float32, np.int64


@dataclass(frozen=True)
class Known:
    """An operand whose values are known when compiling."""

    array: Array


@dataclass(frozen=True)
class Case:
    """One node: arrays are operands of the request, None one that is left out."""

    op: str
    operands: tuple[Array | Known | None, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    opset: int = 24
    outputs: int = 1
    expected: Array | tuple[Array, ...] | None = None
    """Where onnx has no reference."""

    def node(self) -> tuple[Node, list[Array | None], list[Array]]:
        """The node, the arrays of its operands, and what it should make of them."""
        arrays = [item.array if isinstance(item, Known) else item for item in self.operands]
        values = [_value(f"x{place}", item) for place, item in enumerate(self.operands)]
        bare = Node(self.op, values, [Value(f"y{n}") for n in range(self.outputs)], dict(self.attributes))
        match self.expected:
            case None:
                expected = self._reference(bare, arrays)
            case tuple():
                expected = list(self.expected)
            case _:
                expected = [self.expected]
        for output, array in zip(bare.outputs, expected, strict=False):
            output.dtype, output.shape = BY_NUMPY[array.dtype].short, tuple(array.shape)
        return bare, arrays, expected

    def _reference(self, node: Node, arrays: list[Array | None]) -> list[Array]:
        """What onnx's evaluator makes of the node, as a model, so that operators which are functions are expanded."""
        make, names = onnx.helper, [f"x{n}" if array is not None else "" for n, array in enumerate(arrays)]
        given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
        inputs = [
            make.make_tensor_value_info(name, BY_NUMPY[array.dtype].onnx, array.shape)
            for name, array in given.items()
        ]
        outputs = [make.make_tensor_value_info(value.name, 1, None) for value in node.outputs]
        proto = node_proto(node, names, [value.name for value in node.outputs])
        model = make.make_model(
            make.make_graph([proto], "case", inputs, outputs),
            opset_imports=[make.make_opsetid("", self.opset)],
        )
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, given)]


def _value(name: str, item: Array | Known | None) -> Value | None:
    if item is None:
        return None
    array = item.array if isinstance(item, Known) else item
    dtype, shape = BY_NUMPY[array.dtype].short, tuple(array.shape)
    return Constant(name, dtype, shape, array=array) if isinstance(item, Known) else Input(name, dtype, shape)


_RNG = np.random.default_rng(11)


def draw(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(F32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, I64)


def known(*numbers: int) -> Known:
    return Known(ints(*numbers))


def mixed(*shape: int) -> Array:
    """Numbers of both signs, halves and zeros among them."""
    return (_RNG.integers(-9, 10, shape) / 2).astype(F32)


def places(size: int, *shape: int) -> Array:
    """Indices of an axis, negative ones among them."""
    return _RNG.integers(-size, size, shape).astype(I64)


def flags(*shape: int) -> Array:
    return _RNG.integers(0, 2, shape).astype(bool)


X = mixed(2, 3, 4)
POSITIVE = np.abs(draw(2, 3, 4)) + F32(0.1)
UNIT = _RNG.uniform(-0.9, 0.9, (2, 3, 4)).astype(F32)
WHOLE = _RNG.integers(-7, 8, (2, 3, 4)).astype(I64)
NONZERO = np.where(WHOLE == 0, 3, WHOLE)[:1]
LARGE = np.array([8388609, -8388611, 16777215, 4194304.5, -4194305.5, 0.49999997], F32)
"""Whole numbers that a half cannot be added to, halves, and the largest number below a half."""
ODD = np.array([0.5, -1.5, np.inf, -np.inf, np.nan, 0.0], F32)
IMAGE = draw(2, 4, 9, 8)
FLAT_SOFTMAX = np.exp(X) / np.exp(X).sum((1, 2), keepdims=True)
"""Before opset 13 all axes from the given one on are one; equal nodes of two opsets are two pieces of code."""
CUT = np.array([[1.5] * 1, *[[1.0]] * 3, *[[1.5]] * 2], F32)
Q, K, V = draw(2, 4, 3, 8), draw(2, 2, 16, 8), draw(2, 2, 16, 6)
AT = ints(5, 9)
SINKS = np.array([0.5, -1.0, 2.0, 0.0], F32)

UNARY = {
    "X": "Abs Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Mish Neg Relu Round Selu "
    "Sigmoid Sign Sin Sinh Softplus Softsign Swish Tan Tanh",
    "POSITIVE": "Log Reciprocal Sqrt",
    "UNIT": "Acos Asin Atan",
}
BINARY = "Add Sub Mul Div Max Min Sum Mean Greater GreaterOrEqual Less LessOrEqual Equal"


def _elementwise() -> list[Case]:
    cases = [Case(name, (globals()[group],)) for group, names in UNARY.items() for name in names.split()]
    cases += [Case(name, (X, mixed(1, 3, 1) + F32(0.25))) for name in BINARY.split()]
    cases += [
        Case(name, (WHOLE, NONZERO)) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Equal", "Less")
    ]
    cases += [Case(name, (flags(2, 3), flags(3))) for name in ("And", "Or", "Xor", "Equal")]
    cases += [Case(name, (WHOLE, NONZERO)) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")]
    return [
        *cases,
        Case("Not", (flags(5),)),
        Case("BitwiseNot", (WHOLE,)),
        Case("BitShift", (np.array([1, 8], np.uint32), np.array([3, 2], np.uint32)), {"direction": "LEFT"}),
        Case("BitShift", (np.array([17, 8], np.uint32), np.array([3, 2], np.uint32)), {"direction": "RIGHT"}),
        Case("Abs", (WHOLE,)),
        Case("Neg", (WHOLE,)),
        Case("Sign", (WHOLE,)),
        Case("IsNaN", (ODD,)),
        Case("IsInf", (ODD,)),
        Case("IsInf", (ODD,), {"detect_negative": 0}),
        Case("Mod", (X, mixed(4) + F32(0.75)), {"fmod": 1}),
        Case("Mod", (WHOLE, NONZERO), {"fmod": 1}),
        Case("Mod", (np.array([1e6 + 0.5, -7.5], F32), np.array([0.3, 2], F32)), {"fmod": 1}),
        Case("Round", (LARGE,)),
        Case("Max", (X, mixed(4), mixed(3, 1))),
        Case("Pow", (POSITIVE, mixed(4))),
        Case("Pow", (X, Known(np.array(2.0, F32)))),
        Case("Pow", (X, Known(np.array(3.0, F32)))),
        Case("Pow", (X, ints(2))),
        Case("Pow", (WHOLE, Known(ints(3)))),
        Case("Clip", (X, Known(np.array(-1, F32)), Known(np.array(2, F32)))),
        Case("Clip", (X, None, Known(np.array(2, F32)))),
        Case("Clip", (X, np.array(-1, F32))),
        Case("Clip", (X,), {"min": -1.0, "max": 1.5}, 6),
        Case("Gelu", (X,), {"approximate": "tanh"}),
        Case("Swish", (X,), {"alpha": 1.702}),
        Case("Elu", (X,), {"alpha": 0.5}),
        Case("LeakyRelu", (X,), {"alpha": 0.3}),
        Case("PRelu", (X, mixed(3, 1))),
        Case("Where", (flags(3, 1), X, mixed(4))),
        Case("Cast", (X,), {"to": 7}),
        Case("Cast", (X,), {"to": 9}),
        Case("Cast", (WHOLE,), {"to": 1}),
        Case("Cast", (flags(4),), {"to": 1}),
        Case("Cast", (flags(4),), {"to": 7}),
        Case("Cast", (WHOLE,), {"to": 9}),
        Case("Cast", (X,), {"to": 10}),
        Case("Softplus", (X * 40,)),
    ]


def _shapes() -> list[Case]:
    return [
        Case("Reshape", (X, known(0, -1))),
        Case("Reshape", (X, known(4, 2, 3))),
        Case("Flatten", (X,), {"axis": 2}),
        Case("Squeeze", (draw(1, 3, 1), known(0))),
        Case("Squeeze", (draw(1, 3, 1),)),
        Case("Unsqueeze", (X, known(0, -1))),
        Case("Expand", (draw(3, 1), known(2, 1, 4))),
        Case("Transpose", (X,)),
        Case("Transpose", (X,), {"perm": (1, 0, 2)}),
        Case("Transpose", (draw(2, 1, 4),), {"perm": (1, 0, 2)}),
        Case("Concat", (X, draw(2, 2, 4), draw(2, 0, 4)), {"axis": -2}),
        Case("Concat", (WHOLE, WHOLE), {"axis": 0}),
        Case("Concat", (draw(2, 0), draw(2, 0)), {"axis": 1}),
        Case("Split", (X, known(1, 3)), {"axis": -1}, outputs=2),
        Case("Split", (X,), {"axis": 2, "num_outputs": 2}, outputs=2),
        Case("Split", (draw(7, 2),), {"axis": 0, "num_outputs": 3}, outputs=3),
        Case("Slice", (X, known(1, -3), known(3, -1), known(1, 2))),
        Case("Slice", (X, known(0), known(1000), known(1), known(2))),
        Case("Slice", (X, known(-1), known(-1000), known(2), known(-1))),
        Case("Slice", (X, known(3), known(0), known(-1), known(-2))),
        Case("Slice", (X, known(1), known(2))),
        Case("Slice", (X, known(2), known(1), known(1))),
        Case("Slice", (X,), {"starts": (0, 1), "ends": (2, 3), "axes": (0, 2)}, 9),
        Case("Tile", (X, known(2, 1, 3))),
        Case("Pad", (draw(3, 4), known(1, 0, 2, 1))),
        Case("Pad", (np.ones((3, 4), F32), known(1, -1, 2, -2), Known(np.array(1.5, F32))), expected=CUT),
        Case("Pad", (draw(3, 4), known(1, 0, 2, 2), np.array(1.5, F32))),
        Case("Pad", (draw(3, 4), known(2, 1), None, known(-1))),
        Case("Pad", (draw(3, 4), known(2, 1, 2, 3)), {"mode": "reflect"}),
        Case("Pad", (draw(3, 4), known(2, 1, 0, 3)), {"mode": "edge"}),
        Case("Trilu", (draw(2, 4, 4),)),
        Case("Trilu", (draw(4, 5), known(-1)), {"upper": 0}),
        Case("Trilu", (draw(4, 5), known(2))),
        Case("DepthToSpace", (draw(1, 8, 2, 3),), {"blocksize": 2}),
        Case("DepthToSpace", (draw(1, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
        Case("SpaceToDepth", (draw(1, 2, 4, 6),), {"blocksize": 2}),
        Case("Range", (Known(np.array(3, I64)), Known(np.array(11, I64)), Known(np.array(2, I64)))),
        Case("ConstantOfShape", (known(2, 3),), {"value": np.array([2.5], F32)}),
        Case("ConstantOfShape", (known(2),), {"value": ints(2**63 - 1)}),
        Case("Shape", (X,), {"start": 1}),
        Case("Size", (X,)),
        Case("EyeLike", (draw(3, 4),), {"k": 1}),
    ]


def _indexing() -> list[Case]:
    return [
        Case("Gather", (X, places(3, 2, 5)), {"axis": 1}),
        Case("Gather", (X, known(-1, 0)), {"axis": -1}),
        Case("Gather", (X, np.array(-1, I64))),
        Case("Gather", (WHOLE, places(2, 3).astype(np.int32))),
        Case("GatherElements", (X, places(3, 2, 5, 4)), {"axis": 1}),
        Case("GatherND", (X, places(2, 3, 2))),
        Case("GatherND", (X, _RNG.integers(0, 3, (2, 1)).astype(I64)), {"batch_dims": 1}),
        Case("ScatterElements", (X, places(4, 2, 3, 1), draw(2, 3, 1)), {"axis": -1}),
        Case("ScatterElements", (X, places(4, 2, 3, 2), draw(2, 3, 2)), {"axis": 2, "reduction": "add"}),
        Case("ScatterND", (X, ints(1, 0).reshape(2, 1), draw(2, 3, 4))),
        Case("ScatterND", (X, ints(1, 2, 1, 2).reshape(2, 2), draw(2, 4)), {"reduction": "add"}),
        Case("OneHot", (ints(0, 2, -1, 3), Known(np.array(4, I64)), np.array([0, 5], F32))),
        Case("OneHot", (ints(0, 2, -1, 3), Known(np.array(4, I64)), np.array([1, 2], I64)), {"axis": 0}),
        Case("TopK", (draw(3, 9), known(4)), outputs=2),
        Case("TopK", (draw(9, 3), known(2)), {"axis": 0, "largest": 0}, outputs=2),
        Case("TopK", (np.zeros((2, 6), F32), known(3)), outputs=2),
        Case("ArgMax", (X,), {"axis": 1}),
        Case("ArgMax", (X,), {"axis": -1, "keepdims": 0}),
        Case("ArgMax", (np.zeros((2, 6), F32),), {"axis": 1, "select_last_index": 1}),
        Case("ArgMax", (WHOLE,), {"axis": -1, "keepdims": 0}),
        Case("ArgMin", (X,), {"axis": 0}),
        Case("CumSum", (X, Known(np.array(1, I64)))),
        Case("CumSum", (X, Known(np.array(-1, I64))), {"exclusive": 1, "reverse": 1}),
        Case("CumSum", (WHOLE, Known(np.array(0, I64)))),
        Case("Compress", (X, Known(np.array([True, False, True]))), {"axis": 1}),
    ]


def _reductions() -> list[Case]:
    names = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
    cases = [Case(f"Reduce{name}", (X, known(-1))) for name in names]
    cases += [Case(f"Reduce{name}", (X, known(0, 2)), {"keepdims": 0}) for name in names]
    return [
        *cases,
        Case("ReduceSum", (X,)),
        Case("ReduceSum", (X,), {"noop_with_empty_axes": 1}),
        Case("ReduceL2", (X,), {"noop_with_empty_axes": 1}),
        Case("ReduceLogSum", (POSITIVE,), {"noop_with_empty_axes": 1}),
        Case("ReduceLogSumExp", (X,), {"noop_with_empty_axes": 1}),
        Case("ReduceMean", (WHOLE.astype(np.int32), known(1))),
        Case("ReduceMax", (flags(3, 4), known(1))),
        Case("ReduceMin", (flags(3, 4), known(1)), {"keepdims": 0}),
        Case("ReduceSum", (WHOLE, known(1))),
        Case("ReduceMax", (WHOLE, known(1)), {"keepdims": 0}),
        Case("ReduceMean", (X,), {"axes": (1,)}, 13),
        Case("ReduceLogSum", (POSITIVE, known(1))),
        Case("Softmax", (X,)),
        Case("Softmax", (X,), {"axis": 1}),
        Case("Softmax", (X,), {"axis": 1}, 11, expected=FLAT_SOFTMAX),
        Case("Softmax", (X,), {}, 11, expected=FLAT_SOFTMAX),
        Case("LogSoftmax", (X,), {"axis": 0}),
        Case("LayerNormalization", (X + 50, draw(4), draw(4))),
        Case("LayerNormalization", (X, draw(4)), {"epsilon": 0.01}),
        Case("LayerNormalization", (X, draw(3, 4), draw(3, 4)), {"axis": 1}),
        Case("RMSNormalization", (X, draw(4)), {"epsilon": 1e-6}),
        Case("RMSNormalization", (X, draw(3, 4)), {"axis": 1}),
        Case("RMSNormalization", (X, draw(1))),
        Case("BatchNormalization", (IMAGE, draw(4), draw(4), draw(4), np.abs(draw(4)))),
        Case("InstanceNormalization", (IMAGE, draw(4), draw(4))),
        Case("GroupNormalization", (IMAGE, draw(4), draw(4)), {"num_groups": 2}),
        Case("LpNormalization", (X + F32(0.25),)),
        Case("LpNormalization", (POSITIVE,), {"p": 1, "axis": 1}),
        Case(
            "LpNormalization",
            (np.array([[0, 0], [3, 4]], F32),),
            expected=np.array([[0, 0], [0.6, 0.8]], F32),
        ),
    ]


def _products() -> list[Case]:
    return [
        Case("MatMul", (draw(2, 3, 4), draw(4, 5))),
        Case("MatMul", (draw(2, 3, 4), draw(2, 4, 5))),
        Case("MatMul", (draw(1, 2, 3, 4), draw(5, 1, 4, 2))),
        Case("MatMul", (draw(4), draw(4, 5))),
        Case("MatMul", (draw(3, 4), draw(4))),
        Case("Gemm", (draw(3, 4), draw(4, 5), draw(5))),
        Case(
            "Gemm",
            (draw(4, 3), draw(5, 4), draw(3, 1)),
            {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
        ),
        Case("Gemm", (draw(3, 4), draw(5, 4)), {"transB": 1}),
        Case("Einsum", (draw(2, 3, 4), draw(4, 5)), {"equation": "bij, jk -> bik"}),
        Case("Conv", (IMAGE, draw(6, 4, 3, 3), draw(6)), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
        Case("Conv", (IMAGE, draw(8, 2, 3, 3)), {"group": 2, "dilations": (2, 2)}),
        Case(
            "Conv",
            (IMAGE, draw(4, 1, 3, 2), draw(4)),
            {"group": 4, "auto_pad": "SAME_UPPER", "strides": (2, 2)},
        ),
        Case("Conv", (IMAGE, draw(4, 4, 2, 3)), {"pads": (0, 1, 2, 0)}),
        Case("Conv", (draw(1, 3, 9), draw(5, 3, 4), draw(5)), {"pads": (3, 0)}),
        Case("Conv", (draw(1, 2, 4, 5, 6), draw(3, 2, 2, 2, 2))),
        Case(
            "ConvTranspose",
            (draw(1, 3, 4, 5), draw(3, 2, 3, 3), draw(2)),
            {"strides": (2, 2), "pads": (1, 1, 1, 1)},
        ),
        Case("MaxPool", (IMAGE,), {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 0)}),
        Case("MaxPool", (IMAGE,), {"kernel_shape": (2, 3), "strides": (2, 2), "ceil_mode": 1}),
        Case("AveragePool", (IMAGE,), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
        Case("AveragePool", (IMAGE,), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}),
        Case("GlobalAveragePool", (IMAGE,)),
        Case("GlobalMaxPool", (IMAGE,)),
    ]


def _rotary() -> list[Case]:
    angle = draw(2, 3, 4)
    tables = np.cos(angle), np.sin(angle)
    return [
        Case("RotaryEmbedding", (draw(2, 4, 3, 8), *tables)),
        Case("RotaryEmbedding", (draw(2, 4, 3, 8), *tables), {"interleaved": 1}),
        Case("RotaryEmbedding", (draw(2, 4, 3, 12), *tables), {"rotary_embedding_dim": 8}),
        Case("RotaryEmbedding", (draw(2, 3, 32), *tables), {"num_heads": 4}),
        Case(
            "RotaryEmbedding",
            (draw(2, 4, 3, 8), draw(9, 4), draw(9, 4), _RNG.integers(0, 9, (2, 3)).astype(I64)),
        ),
    ]


def _attention() -> list[Case]:
    """Every rule with every mask, over a cache and without one."""
    rules: list[dict[str, Any]] = [
        {"causal": 1}, {"causal": 1, "window": 4}, {"causal": 1, "chunk": 4}, {"causal": 1, "softcap": 2.0},
        {"causal": 1, "window": 3, "chunk": 5, "softcap": 1.5}, {"causal": 0},
    ]  # fmt: skip
    itself = (np.arange(16) >= 5) & (np.arange(16) <= 11)
    masks = [None, flags(2, 1, 3, 16) | itself, draw(2, 4, 3, 16), flags(2, 1, 1, 16) | itself]
    cases = []
    for number, (rule, mask) in enumerate((rule, mask) for rule in rules for mask in masks):
        sinks = SINKS if number % 3 == 0 else None
        keywords = {key: bool(value) if key == "causal" else value for key, value in rule.items()}
        expected = attention(Q, K, V, AT, scale=0.3, mask=mask, sinks=sinks, **keywords)
        cases.append(
            Case("partc.Attention", (Q, K, V, AT, mask, sinks), {"scale": 0.3, **rule}, expected=expected)
        )
    q, k, v = draw(2, 4, 5, 8), draw(2, 4, 5, 8), draw(2, 4, 5, 8)
    zero = ints(0, 0)
    for causal in (0, 1):
        expected = attention(q, k, v, zero, scale=0.3, causal=bool(causal))
        cases.append(Case("partc.Attention", (q, k, v), {"scale": 0.3, "causal": causal}, expected=expected))
    return cases


def _caches_of_8_bits() -> list[Case]:
    """Rows, and attention over them."""
    rounded: list[list[Array]] = [QUANTIZE_ROWS.reference([x], {}) for x in (K, V)]
    (k, key_scales), (v, value_scales) = rounded
    rule: dict[str, Any] = {"scale": 0.3, "causal": True}
    expected = attention(Q, k * key_scales, v * value_scales, AT, sinks=SINKS, **rule)
    operands = (Q, k, v, key_scales, value_scales, AT, None, SINKS)
    return [
        Case("partc.QuantizeRows", (K,), outputs=2, expected=(k, key_scales)),
        Case("partc.QuantizedAttention", operands, {"scale": 0.3, "causal": 1}, expected=expected),
    ]


CASES = [
    *_elementwise(),
    *_shapes(),
    *_indexing(),
    *_reductions(),
    *_products(),
    *_rotary(),
    *_attention(),
    *_caches_of_8_bits(),
]


def module_of_cases(numbers: Iterable[int] = range(len(CASES))) -> Any:
    """A function of Relax for every one of these cases."""
    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.operators import OPERATORS

    builder = ModuleBuilder(OPERATORS, frozenset())
    for number in numbers:
        case = CASES[number]
        node, _, _ = case.node()
        inputs = [value for value in node.inputs if isinstance(value, Input)]
        builder.add(f"case_{number}", Graph("case", inputs, node.outputs, [node], case.opset), inputs)
    return builder.finish()


@pytest.fixture(scope="module")
def machine() -> Any:
    """All cases, compiled for a processor."""
    from tvm import relax

    from targets.tvm.machine import machine_of

    target = machine_of("x86_64", "", (), "cpu", "").target()
    return relax.VirtualMachine(relax.build(module_of_cases(), target), tvm.cpu())


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n].op}-{n}")
def test_operator(machine: Any, number: int) -> None:
    case = CASES[number]
    node, arrays, expected = case.node()
    given = [
        a for value, a in zip(node.inputs, arrays, strict=True) if isinstance(value, Input) and a is not None
    ]
    found = machine[f"case_{number}"](
        *(tvm.runtime.tensor(np.require(array, requirements="C")) for array in given)
    )
    for got, right in zip(found, expected, strict=True):
        assert got.numpy().dtype == right.dtype
        np.testing.assert_allclose(got.numpy(), right, atol=2e-5, rtol=2e-5)


def test_update_writes_new_rows_alone_and_none_behind_the_end() -> None:
    from tvm import relax

    from partc.ir.graph import State
    from targets.tvm.builder import ModuleBuilder
    from targets.tvm.operators import OPERATORS

    cache, new, position = draw(2, 2, 8, 4), draw(2, 2, 3, 4), ints(2, 6)
    state, rows = State("state", "f32", cache.shape), Input("new", "f32", new.shape)
    at, full = Input("position", "i64", (2,)), Value("full", "f32", cache.shape)
    node = Node("partc.UpdateState", [state, rows, at], [full])
    builder = ModuleBuilder(OPERATORS, frozenset())
    builder.add("step", Graph("g", [rows, at], [full], [node], 24), [rows, at, state])
    vm = relax.VirtualMachine(relax.build(builder.finish(), "llvm"), tvm.cpu())
    held = tvm.runtime.tensor(cache)
    vm["step"](tvm.runtime.tensor(new), tvm.runtime.tensor(position), held)
    right = update(cache, new[:, :, :2], position)
    right[0, :, 4] = new[0, :, 2]
    np.testing.assert_array_equal(held.numpy(), right)


def test_no_place_that_is_data_leads_out_of_a_tensor(tmp_path: Path) -> None:
    """The compiler clamps places in kernels of their own; a damaged plan leaves those out."""
    from targets.tvm.link import build_kernels
    from targets.tvm.machine import machine_of
    from targets.tvm.toolchain import find_toolchain

    cases = [
        number for number, case in enumerate(CASES) if case.op.startswith(("Gather", "Scatter", "Rotary"))
    ]
    machine = machine_of("x86_64", "", (), "cpu", "")
    names = [f"case_{number}" for number in cases]
    module, tools = module_of_cases(cases), find_toolchain(machine, "", "")
    plan, _ = build_kernels(module, names, machine, tools, tmp_path / "library.so")
    (tmp_path / "kernels.json").write_text(kernel_plan_text(plan))
    check_kernels(tmp_path)


def test_every_operator_has_a_case() -> None:
    from targets.tvm.operators import OPERATORS

    tested = {case.op for case in CASES} | {"partc.UpdateState"}
    assert sorted(set(OPERATORS) - tested - {"CastLike"}) == []
