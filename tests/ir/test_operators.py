"""The table of our operators: its documents, its checks, its size rules, and its references against plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import InternalError
from partc.format.dims import evaluate, symbols
from partc.ir.effects import STATE_WRITES
from partc.ir.graph import Graph, Input, ModelInfo, Node, State, Value
from partc.ir.operators import (
    ATTENTION,
    CAUSAL_CONV,
    DOMAIN,
    LINEAR_ATTENTION,
    OPERATORS,
    QUANTIZED_MATMUL,
    UPDATE_STATE,
    Operator,
)
from partc.ir.operators.document import document
from partc.ir.operators.operator import TYPES, MismatchError, Signature, Tensor, TypedSizes
from partc.ir.sizes import SizeInference
from partc.ir.text import parse_module
from partc.ir.types import BY_NUMPY, BY_SHORT
from partc.ir.verify import verify_graph
from partc.ir.weight_formats import INT4
from passes.infer_sizes import infer_sizes

ROOT = Path(__file__).parents[2]
Array = npt.NDArray[Any]


def test_the_document_is_that_of_the_table() -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    assert text == document(), "run `python -m partc.ir.operators > docs/operators.md`"


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_an_entry_fits_itself(operator: Operator) -> None:
    assert operator.name.startswith(f"{DOMAIN}.")
    assert STATE_WRITES.get(operator.name, ()) == operator.writes
    names = {spec.name for spec in operator.attributes}
    for signature in operator.signatures:
        assert signature.where.keys() <= names
        known = {dim for tensor in (*signature.operands, *signature.repeated) for dim in _names(tensor)}
        assert {dim for tensor in signature.results for dim in _names(tensor)} <= known
        for write in operator.writes:
            state, result = signature.operands[write.operand], signature.results[write.result]
            assert (state.dtype, state.sizes) == (result.dtype, result.sizes)


def _names(tensor: Tensor) -> set[str]:
    named = {dim.rpartition("|")[2] for dim in tensor.dims}
    return {symbol for dim in named - {"..."} for symbol in symbols(dim)} | named & {"..."}


SIZES = st.integers(1, 4)
HALF = 4
"""Bytes of a block in the drawn data: half of the block."""


@st.composite
def calls(draw: Any, operator: Operator) -> tuple[Signature, list[Array | None], dict[str, int | float]]:
    """Operands and attributes that fit a signature of the operator."""
    signature = draw(st.sampled_from(operator.signatures))
    numbers: dict[str, int] = {"half": HALF, "d": draw(SIZES), "kv_heads": draw(SIZES)}
    numbers["groups"] = draw(SIZES)
    shared = next((name for name in ("kv_heads", "groups") if name in str(signature)), None)
    numbers["heads"] = draw(SIZES) * (numbers[shared] if shared else 1)
    numbers["kernel"] = 1 + draw(SIZES)
    numbers["blocks"], numbers["block"] = draw(SIZES), 2 * HALF
    has_blocks = "bits" in signature.where and "block" not in signature.where
    numbers["K"] = draw(st.integers(1, 2 * HALF * numbers["blocks"])) if has_blocks else 3
    numbers["rows"], numbers["max_sequence"], numbers["1"] = draw(SIZES), 6, 1
    leading = tuple(draw(st.lists(SIZES, max_size=2)))
    experts = draw(SIZES) if signature.repeated else 0
    operands: list[Array | None] = []
    for tensor in (*signature.operands, *signature.repeated * experts):
        if tensor.optional and draw(st.booleans()):
            operands.append(None)
            continue
        operands.append(_array(draw, tensor, numbers, leading, experts))
    attributes: dict[str, int | float] = {spec.name: spec.default or 0 for spec in operator.attributes}
    attributes |= {"scale": 0.5} if "scale" in attributes else {}
    attributes |= dict(signature.where) | ({"block": 2 * HALF} if has_blocks else {})
    return signature, operands, attributes


def _array(
    draw: Any, tensor: Tensor, numbers: dict[str, int], leading: tuple[int, ...], experts: int
) -> Array:
    shape: list[int] = []
    for dim in tensor.dims:
        one, _, name = dim.rpartition("|")
        if dim == "...":
            shape += leading
        else:
            size = evaluate(name, numbers) if "-" in name else numbers.setdefault(name, draw(SIZES))
            shape.append(1 if one and draw(st.booleans()) else size)
    allowed = TYPES.get(tensor.dtype, (tensor.dtype,))
    kind = "f32" if "f32" in allowed and tensor.dtype in "TC" else draw(st.sampled_from(allowed))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if kind == "bf16":
        kind = "f32"
    dtype = BY_SHORT[kind].numpy
    if tensor.name in ("indices", "chosen"):
        return rng.integers(0, experts or numbers["N"], shape).astype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
@given(data=st.data())
@settings(max_examples=60)
def test_sizes_are_those_of_the_reference(operator: Operator, data: Any) -> None:
    signature, operands, attributes = data.draw(calls(operator))
    found = operator.reference(operands, attributes)
    given_sizes = [_typed(array) for array in operands]
    assert signature.sizes(given_sizes) == [_typed(array) for array in found]
    for write in operator.writes:
        others = [None if place == write.operand else sizes for place, sizes in enumerate(given_sizes)]
        assert signature.state_sizes(write.operand, others, 6) == given_sizes[write.operand]
    _check_symbolic(operator, operands, attributes, found)


def _typed(array: Array | None) -> TypedSizes | None:
    return None if array is None else (BY_NUMPY[array.dtype].short, array.shape)


def _check_symbolic(
    operator: Operator, operands: list[Array | None], attributes: Mapping[str, Any], found: list[Array]
) -> None:
    """Size inference over a graph whose first sizes are symbols gives the same sizes for these numbers."""
    written = {write.operand for write in operator.writes}
    bindings: dict[str, int] = {}
    values: list[Value | None] = []
    for place, array in enumerate(operands):
        kind, shape = (None, ()) if array is None else (BY_NUMPY[array.dtype].short, array.shape)
        make = State if place in written else Input
        if array is None:
            values.append(None)
        elif operator is UPDATE_STATE or operator is ATTENTION:
            bindings["batch"] = shape[0] if place == 0 else bindings["batch"]
            named = "batch" if place != 5 and shape[0] == bindings["batch"] != 1 else shape[0]
            values.append(make(f"i{place}", kind, (named, *shape[1:])))
        else:
            values.append(make(f"i{place}", kind, shape))
    outputs = [Value(f"o{place}") for place in range(len(found))]
    node = Node(operator.name, values, outputs, dict(attributes))
    inputs = [value for value in values if isinstance(value, Input)]
    graph = Graph("g", inputs, outputs, [node], 24)
    verify_graph(graph)
    inferred = SizeInference(graph, ModelInfo("m", "graph", dims=bindings)).infer(graph)
    for output, array in zip(outputs, found, strict=True):
        symbolic = inferred.shape(output)
        assert symbolic is not None, inferred.failures
        assert tuple(evaluate(dim, bindings) for dim in symbolic) == array.shape


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
@given(data=st.data())
@settings(max_examples=40)
def test_operands_of_another_rank_or_type_are_refused(operator: Operator, data: Any) -> None:
    signature, operands, _ = data.draw(calls(operator))
    sizes = [_typed(array) for array in operands]
    place = data.draw(st.sampled_from([i for i, typed in enumerate(sizes) if typed is not None]))
    tensor = signature.of_places(len(sizes))[place]
    dtype, shape = sizes[place] or ("", ())
    broken = [("u64", shape)] if tensor.dims[0] == "..." else [("u64", shape), (dtype, (*shape, 1))]
    for wrong in broken:
        with pytest.raises(MismatchError, match=tensor.name):
            signature.sizes([*sizes[:place], wrong, *sizes[place + 1 :]])


def test_sizes_that_contradict_each_other_are_refused() -> None:
    signature = ATTENTION.signatures[0]
    query, key, value = ("f32", (2, 4, 3, 8)), ("f32", (2, 2, 9, 8)), ("f32", (2, 2, 9, 6))
    assert signature.sizes([query, key, value]) == [("f32", (2, 4, 3, 6))]
    with pytest.raises(MismatchError, match=r"value is f32\[2, 2, 8, 6\], not T\[.*\] with .*keys = 9"):
        signature.sizes([query, key, ("f32", (2, 2, 8, 6))])
    with pytest.raises(MismatchError, match="its operand value is missing"):
        signature.sizes([query, key])


GOOD = """\
partc-ir 1
model {"name": "m", "task": "text-generation"}
graph g opset 24 {
  input %new: f32[1, 2, sequence, 8]
  input %position: i64[1]
  state %cache: f32[1, 2, 16, 8]
  %full: ?[?] = partc.UpdateState(%cache, %new, %position)
  %y: ?[?] = partc.Attention(%new, %full, %full, %position) {scale = 0.5, causal = 1}
  output %y
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("partc.Attention(", "partc.Atention(", "there is no such operator"),
        (", %full, %position) {", ") {", "its operand value is missing"),
        ("%full, %position) {", "%full, %position, _, _, %new) {", "it takes 6 operands, not 7"),
        ("scale = 0.5, ", "", "its attribute scale is missing"),
        ("causal = 1", "causal = 0.5", "its attribute causal is 0.5, which is no int"),
        ("causal = 1", "casual = 1", "it has no attribute casual"),
        ("UpdateState(%cache", "UpdateState(%new", "its operand state is no state"),
        ("%y: ?[?]", "%y: ?[?], %z: ?[?]", "it has 1 results, not 2"),
    ],
    ids=str,
)
def test_the_verifier_refuses_what_does_not_fit_the_table(old: str, new: str, message: str) -> None:
    verify_graph(parse_module(GOOD).graph)
    assert old in GOOD
    with pytest.raises(InternalError, match=message):
        verify_graph(parse_module(GOOD.replace(old, new)).graph)


def test_experts_without_scales_are_refused() -> None:
    values = [Value(name) for name in ("x", "chosen", "data", "scales", "data")]
    node = Node("partc.QuantizedExperts", list(values), [Value("y")], {"bits": 8, "block": 0})
    with pytest.raises(MismatchError, match="data and scales, again and again; one is missing"):
        OPERATORS[node.op].check(node)
    with pytest.raises(MismatchError, match=r"there is no form of it with .'bits': 3"):
        OPERATORS[node.op].signature({"bits": 3})


def test_a_state_without_sizes_gets_room_for_the_longest_sequence() -> None:
    text = GOOD.replace("state %cache: f32[1, 2, 16, 8]", "state %cache: ?[?]")
    module = parse_module(text.replace('"task"', '"max_sequence": 40, "task"'))
    infer_sizes(module)
    (state,) = module.graph.states()
    assert (state.dtype, state.shape) == ("f32", (1, 2, 40, 8))
    assert module.graph.outputs[0].shape == (1, 2, "sequence", 8)


def _loops(
    q: Array,
    k: Array,
    v: Array,
    position: Array,
    mask: Array | None,
    sinks: Array | None,
    rule: Mapping[str, Any],
) -> Array:
    """Attention from its definition, one query at a time."""
    batch, heads, rows, _ = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    out = np.zeros((batch, heads, rows, v.shape[3]))
    for b, h, s in np.ndindex(batch, heads, rows):
        i = int(position[b]) + s
        seen = [j for j in range(keys) if _sees(i, j, rule)]
        if mask is not None and mask.dtype == bool:
            seen = [j for j in seen if np.broadcast_to(mask, (batch, heads, rows, keys))[b, h, s, j]]
        scores = [float(k[b, h // group, j] @ q[b, h, s]) * rule["scale"] for j in seen]
        if rule["softcap"]:
            scores = [rule["softcap"] * float(np.tanh(score / rule["softcap"])) for score in scores]
        if mask is not None and mask.dtype != bool:
            scores = [x + mask[0, h, s, j] for x, j in zip(scores, seen, strict=True)]
        weights = np.exp(scores)
        total = weights.sum() + (0 if sinks is None else np.exp(sinks[h]))
        out[b, h, s] = sum(w / total * v[b, h // group, j] for w, j in zip(weights, seen, strict=True))
    return out


def _sees(i: int, j: int, rule: Mapping[str, Any]) -> bool:
    hides = rule["causal"] or rule["window"] or rule["chunk"]
    in_window = not rule["window"] or i - rule["window"] < j
    in_chunk = not rule["chunk"] or i // rule["chunk"] == j // rule["chunk"]
    return (not hides or j <= i) and in_window and in_chunk


@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("mask", ["", "bool", "float"])
@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"causal": 1},
        {"window": 3},
        {"chunk": 4},
        {"causal": 1, "softcap": 0.7},
        {"window": 5, "chunk": 3},
    ],
    ids=str,
)
def test_the_reference_of_attention_is_its_definition(
    rule: dict[str, Any], mask: str, sinks: bool, rng: np.random.Generator
) -> None:
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 4, 3, 8), (2, 2, 9, 8), (2, 2, 9, 6)))
    masks = {"": None, "float": rng.standard_normal((1, 4, 3, 9)), "bool": rng.random((2, 1, 3, 9)) > 0.2}
    if mask == "bool":
        masks["bool"] = masks["bool"] | np.eye(9, dtype=bool)[[[4, 5, 6], [0, 1, 2]]][:, None]
    numbers = ATTENTION.numbers({"scale": 0.4, **rule})
    position, sink = np.array([4, 0]), rng.standard_normal(4) if sinks else None
    found: Array = ATTENTION.reference([q, k, v, position, masks[mask], sink], numbers)[0]
    expected = _loops(q, k, v, position, masks[mask], sink, numbers)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    q, k = np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, 3, 2), np.float32)
    nothing = np.zeros((1, 1, 1, 3), bool)
    (found,) = ATTENTION.reference([q, k, k, None, nothing, None], ATTENTION.numbers({"scale": 1.0}))
    assert not found.any()


def test_rows_behind_the_end_of_a_cache_are_not_written(rng: np.random.Generator) -> None:
    state, new = rng.standard_normal((2, 1, 5, 3)), rng.standard_normal((2, 1, 2, 3))
    (full,) = UPDATE_STATE.reference([state, new, np.array([1, 4])], {})
    np.testing.assert_array_equal(full[0, :, 1:3], new[0])
    np.testing.assert_array_equal(full[1, :, 4:], new[1, :, :1])
    np.testing.assert_array_equal(full[0, :, [0, 3, 4]], state[0, :, [0, 3, 4]])
    np.testing.assert_array_equal(full[1, :, :4], state[1, :, :4])


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_a_convolution_is_that_of_the_whole_sequence(shift: int, rng: np.random.Generator) -> None:
    rows, weight, bias = rng.standard_normal((9, 3)), rng.standard_normal((3, 4)), rng.standard_normal(3)
    before = np.concatenate([np.zeros((3, 3)), rows])
    expected = np.stack([(before[s : s + 4].T * weight).sum(1) + bias for s in range(9)])
    given = np.concatenate([rows[shift:], np.full((2, 3), np.nan)])[None]
    state, length = before[None, shift : shift + 3], np.array([9 - shift])
    out, last = CAUSAL_CONV.reference([state, given, weight, length, bias], {})
    found: Array = out[0, : 9 - shift]
    np.testing.assert_allclose(found, expected[shift:])
    np.testing.assert_array_equal(last[0], rows[6:])


@pytest.mark.parametrize("delta", [False, True], ids=["", "beta"])
@pytest.mark.parametrize("channels", [1, 4], ids=["decay of a head", "decay of a channel"])
def test_a_linear_attention_is_its_definition(delta: bool, channels: int, rng: np.random.Generator) -> None:
    heads, groups, rows, valid = 6, 2, 5, 3
    q, k = (rng.standard_normal((1, rows, groups, 4)) for _ in range(2))
    v, state = rng.standard_normal((1, rows, heads, 3)), rng.standard_normal((1, heads, 4, 3))
    decay, beta = -rng.random((1, rows, heads, channels)), rng.random((1, rows, heads))
    out, last = LINEAR_ATTENTION.reference(
        [state, q, k, v, decay, np.array([valid]), beta if delta else None], {"scale": 0.5}
    )
    for h in range(heads):
        held = state[0, h].copy()
        for s in range(valid):
            key, query = k[0, s, h // 3], q[0, s, h // 3]
            held = np.diag(np.exp(np.broadcast_to(decay[0, s, h], 4))) @ held
            new = beta[0, s, h] * (v[0, s, h] - held.T @ key) if delta else v[0, s, h]
            held = held + np.outer(key, new)
            np.testing.assert_allclose(out[0, s, h], 0.5 * held.T @ query)
        np.testing.assert_allclose(last[0, h], held)


def test_a_quantised_product_leaves_out_what_fills_up_a_block(rng: np.random.Generator) -> None:
    data = rng.integers(0, 256, (4, 2, 8)).astype(np.uint8)
    scales, x = (
        rng.standard_normal((4, 2)).astype(np.float32),
        rng.standard_normal((3, 20)).astype(np.float32),
    )
    found: Array = QUANTIZED_MATMUL.reference([x, data, scales], {"bits": 4, "block": 16})[0]
    expected: Array = x @ INT4.dequantize(data, scales)[:, :20].T
    np.testing.assert_allclose(found, expected, rtol=1e-5)
