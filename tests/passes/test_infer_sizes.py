from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import UserError
from partc.format.dims import evaluate
from partc.ir.graph import Module, Value
from partc.ir.samples import Samples
from partc.ir.sizes import SizeInference
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from passes.infer_sizes import infer_sizes
from tests.passes.interpreter import Checkpoint, run


def module(body: str, opset: int = 20, dims: str = "{}") -> Module:
    header = f'model {{"name": "test", "task": "graph", "max_sequence": 128, "dims": {dims}}}'
    return parse_module(f"partc-ir 1\n{header}\ngraph test opset {opset} {{\n{body}\n}}\n")


def sizes(body: str, opset: int = 20) -> dict[str, str]:
    """Value → its type as the text form shows it, after inference."""
    result = module(body, opset)
    infer_sizes(result)
    verify(result, "sized")
    assert parse_module(print_module(result))
    return {value.name: shown(value) for value in result.graph.values()}


def shown(value: Value) -> str:
    return f"{value.dtype}[{', '.join(str(dim) for dim in value.shape or ())}]"


def test_symbols_flow_through_shape_arithmetic() -> None:
    found = sizes("""
      input %x: f32[batch, sequence, 64]
      const %axis = i64[1] [0]
      const %zero = i64[] [0]
      const %one = i64[] [1]
      const %width = i64[1] [64]
      %batch: ?[?] = Shape(%x) {start = 0, end = 1}
      %rows: ?[?] = Shape(%x) {start = 1, end = 2}
      %count: ?[?] = Mul(%batch, %rows)
      %target: ?[?] = Concat(%count, %width) {axis = 0}
      %flat: ?[?] = Reshape(%x, %target)
      %scalar: ?[?] = Squeeze(%rows, %axis)
      %more: ?[?] = Add(%scalar, %one)
      %index: ?[?] = Range(%zero, %more, %one)
      output %flat, %index
    """)
    assert found["flat"] == "f32[batch*sequence, 64]"
    assert found["index"] == "i64[sequence + 1]"


def test_quotients_become_sizes() -> None:
    found = sizes("""
      input %x: f32[sequence, 8]
      const %axis = i64[1] [0]
      const %zero = i64[] [0]
      const %one = i64[] [1]
      const %two = i64[] [2]
      %rows: ?[?] = Shape(%x) {start = 0, end = 1}
      %scalar: ?[?] = Squeeze(%rows, %axis)
      %half: ?[?] = Div(%scalar, %two)
      %index: ?[?] = Range(%zero, %half, %one)
      %twice: ?[?] = Concat(%index, %index) {axis = 0}
      output %twice
    """)
    assert found["index"] == "i64[sequence//2]"
    assert found["twice"] == "i64[2*(sequence//2)]"


def test_convolutions_of_symbolic_images() -> None:
    found = sizes("""
      input %x: f32[n, 3, height, width]
      weight %w = f32[8, 3, 7, 7] from "m"#"w"
      const %all = i64[3] [0, 8, -1]
      %padded: ?[?] = Conv(%x, %w) {strides = [2, 2], pads = [3, 3, 3, 3]}
      %pooled: ?[?] = MaxPool(%padded) {strides = [2, 2], pads = [1, 1, 1, 1], kernel_shape = [3, 3]}
      %flat: ?[?] = Reshape(%padded, %all)
      output %pooled, %flat
    """)
    assert found["padded"] == "f32[n, 8, (height + 1)//2, (width + 1)//2]"
    assert found["pooled"] == "f32[n, 8, ((height + 1)//2 + 1)//2, ((width + 1)//2 + 1)//2]"
    assert found["flat"] == "f32[n, 8, ((height + 1)//2)*((width + 1)//2)]"


def test_convolutions_without_padding_need_larger_samples() -> None:
    found = sizes("""
      input %x: f32[1, 3, height, 32]
      weight %w = f32[8, 3, 7, 7] from "m"#"w"
      %whole: ?[?] = Conv(%x, %w)
      %half: ?[?] = Conv(%x, %w) {strides = [2, 2]}
      output %whole, %half
    """)
    assert found["whole"] == "f32[1, 8, height - 6, 26]"
    assert found["half"] == "f32[1, 8, (height - 5)//2, 13]"


def test_networks_that_halve_and_double_need_even_samples() -> None:
    found = sizes("""
      input %x: f32[n, 3, height, 64]
      const %scales = f32[4] [1, 1, 2, 2]
      %small: ?[?] = MaxPool(%x) {strides = [2, 2], kernel_shape = [2, 2]}
      %large: ?[?] = Resize(%small, _, %scales) {mode = "nearest"}
      %both: ?[?] = Concat(%x, %large) {axis = 1}
      output %both
    """)
    assert found["both"] == "f32[n, 6, height, 64]"


def test_defaults_are_those_of_the_operator() -> None:
    """STFT gives half of a spectrum where nothing is said; ONNX's own inference reads all of it."""
    found = sizes("""
      input %x: f32[batch, 1600, 1]
      const %hop = i64[] [160]
      const %length = i64[] [400]
      %spectrum: ?[?] = STFT(%x, %hop, _, %length)
      output %spectrum
    """)
    assert found["spectrum"] == "f32[batch, 8, 201, 2]"


def test_operators_of_mixtures_of_experts() -> None:
    found = sizes("""
      input %x: f32[batch, sequence, 64]
      weight %gate = f32[64, 4] from "m"#"gate"
      const %k = i64[1] [2]
      const %depth = i64[] [4]
      const %values = f32[2] [0, 1]
      const %rows = i64[2] [-1, 64]
      const %zeros = f32[1] [0]
      %tokens: ?[?] = Reshape(%x, %rows)
      %scores: ?[?] = MatMul(%tokens, %gate)
      %best: ?[?], %expert: ?[?] = TopK(%scores, %k) {axis = -1}
      %hot: ?[?] = OneHot(%expert, %depth, %values) {axis = -1}
      %sparse: ?[?] = ScatterElements(%scores, %expert, %best) {axis = 1}
      %shape: ?[?] = Shape(%scores)
      %empty: ?[?] = ConstantOfShape(%shape) {value = tensor f32[1] [0]}
      output %hot, %sparse, %empty
    """)
    assert found["expert"] == "i64[batch*sequence, 2]"
    assert found["hot"] == "f32[batch*sequence, 2, 4]"
    assert found["sparse"] == "f32[batch*sequence, 4]"
    assert found["empty"] == "f32[batch*sequence, 4]"


def test_own_operators() -> None:
    found = sizes(
        """
      input %q: f32[batch, 4, sequence, 16]
      input %k: f32[batch, 2, sequence, 16]
      input %v: f32[batch, 2, sequence, 8]
      input %position: i64[batch]
      state %cache.0.key: f32[?]
      state %cache.0.value: f32[batch, 2, 128, 8]
      %keys: ?[?] = partc.UpdateState(%cache.0.key, %k, %position)
      %values: ?[?] = partc.UpdateState(%cache.0.value, %v, %position)
      %out: ?[?] = partc.Attention(%q, %keys, %values, %position) {causal = 1, scale = 0.25}
      output %out
    """,
        opset=24,
    )
    assert found["cache.0.key"] == "f32[batch, 2, 128, 16]"
    assert found["keys"] == "f32[batch, 2, 128, 16]"
    assert found["out"] == "f32[batch, 4, sequence, 8]"


def test_what_the_exporter_gave_stays_where_nothing_can_be_inferred() -> None:
    found = sizes("""
      input %x: f32[batch, 8]
      %y: f32[batch, 3] = com.example.Mystery(%x)
      %z: ?[?] = Relu(%y)
      output %z
    """)
    assert found["z"] == "f32[batch, 3]"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%y: ?[?] = NonZero(%x)", "cannot infer the size of the output of NonZero: it depends on data"),
        ("%y: ?[?] = Bogus(%x)", "no operator Bogus"),
        ("%y: ?[?] = com.example.Mystery(%x)", "no size rule for the operator com.example.Mystery"),
        ("%y: ?[?] = MatMul(%x, %x)", "Incompatible dimensions"),
    ],
)
def test_unknown_sizes_name_node_and_operator(line: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        sizes(f"input %x: f32[batch, 3, 8, 7]\n{line} @ model.layer\noutput %y")
    assert says in error.value.message
    assert error.value.where is not None
    assert error.value.where.startswith("node y (")
    assert error.value.where.endswith("@ model.layer")


def test_an_input_without_a_shape_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="%x has no element type or no shape"):
        sizes("input %x: f32[?]\n%y: ?[?] = Relu(%x)\noutput %y")


def test_sizes_hold_for_sizes_that_were_not_sampled() -> None:
    example = module("""
      input %x: f32[batch, sequence, 12]
      const %heads = i64[4] [0, 0, 3, 4]
      const %rows = i64[2] [-1, 12]
      %split: ?[?] = Reshape(%x, %heads)
      %turned: ?[?] = Transpose(%split) {perm = [0, 2, 1, 3]}
      %flat: ?[?] = Reshape(%x, %rows)
      %scores: ?[?] = Einsum(%turned, %turned) {equation = "bhsd,bhtd->bhst"}
      output %flat, %scores
    """)
    infer_sizes(example)
    feeds = {"x": np.ones((6, 9, 12), np.float32)}
    run(example.graph, feeds, Checkpoint(example.graph))  # compares every size with what numpy makes


def test_ten_thousand_nodes_in_seconds() -> None:
    lines = ["input %x0: f32[batch, sequence, 64]", 'weight %w = f32[64, 64] from "m"#"w"']
    lines += ["const %index = i64[] [0]", "const %axis = i64[1] [0]", "const %tail = i64[2] [-1, 64]"]
    for i in range(1500):
        lines += [
            f"%a{i}: ?[?] = MatMul(%x{i}, %w)",
            f"%s{i}: ?[?] = Shape(%a{i})",
            f"%g{i}: ?[?] = Gather(%s{i}, %index)",
            f"%u{i}: ?[?] = Unsqueeze(%g{i}, %axis)",
            f"%c{i}: ?[?] = Concat(%u{i}, %tail) {{axis = 0}}",
            f"%r{i}: ?[?] = Reshape(%a{i}, %c{i})",
            f"%x{i + 1}: ?[?] = Add(%r{i}, %x{i})",
        ]
    large = module("\n".join([*lines, "output %x1500"]))
    start = time.process_time()
    infer_sizes(large)
    assert time.process_time() - start < 20
    assert shown(large.graph.outputs[0]) == "f32[batch, sequence, 64]"


@given(st.tuples(*[st.integers(-3, 5)] * 3), st.integers(0, 9))
def test_polynomials_are_found_again(coefficients: tuple[int, int, int], constant: int) -> None:
    a, b, c = coefficients
    samples = Samples(("batch", "sequence"), {"batch": 4, "sequence": 512})
    vector = samples.vector(f"{a}*batch*sequence + {b}*batch + {c}*sequence + {constant}")
    assert vector is not None
    dim = samples.dim(vector)
    assert dim is not None
    for binding in ({"batch": 6, "sequence": 100}, {"batch": 1, "sequence": 1}):
        x, y = binding["batch"], binding["sequence"]
        assert evaluate(dim, binding) == a * x * y + b * x + c * y + constant


def test_sizes_are_written_in_one_way() -> None:
    samples = Samples(("batch", "sequence"), {})
    for text in ("batch*sequence", "2*batch - sequence", "sequence + 1", "sequence*sequence - 3"):
        vector = samples.vector(text)
        assert vector is not None
        assert samples.dim(vector) == text


def test_samples_reach_the_largest_sizes_alone_and_together() -> None:
    largest = {"batch": 4, "sequence": 2048}
    for scale, offset in ((1, 0), (1, 30), (64, 0)):
        samples = Samples(("batch", "sequence"), {"sequence": 2048, "batch": 4}, scale, offset)
        pairs = {(b["batch"], b["sequence"]) for b in samples.bindings}
        high = tuple(max(scale, largest[name]) for name in samples.symbols)
        low = (scale + min(offset, 3), scale + offset)
        assert {low, high, (low[0], high[1]), (high[0], low[1])} <= pairs
        quarters = sorted(sequence for batch, sequence in pairs if batch == low[0])
        assert max(b - a for a, b in pairwise(quarters)) <= 2048 // 4 + scale


@pytest.mark.parametrize("convolution", ["Conv(%image, %w)", "Conv(%half, %w) {pads = [3, 3, 3, 3]}"])
@pytest.mark.parametrize("threshold", [40, 90, 199])
def test_predicates_are_not_folded_where_small_or_odd_sizes_are_refused(
    convolution: str, threshold: int
) -> None:
    """A convolution that needs 7 rows, and one behind a network that halves and doubles."""
    text = f"""
      input %image: f32[1, 3, height, 64]
      weight %w = f32[8, 3, 7, 7] from "m"#"w"
      const %scales = f32[4] [1, 1, 2, 2]
      const %limit = i64[1] [{threshold}]
      %small: ?[?] = MaxPool(%image) {{strides = [2, 2], kernel_shape = [2, 2]}}
      %half: ?[?] = Resize(%small, _, %scales) {{mode = "nearest"}}
      {"%both: ?[?] = Add(%image, %half)" if "half" in convolution else ""}
      %y: ?[?] = {convolution}
      %rows: ?[?] = Shape(%image) {{start = 2, end = 3}}
      %less: ?[?] = Less(%rows, %limit)
      output %y, %less{", %both" if "half" in convolution else ""}
    """
    example = module(text, dims='{"height": 200}')
    inferred = SizeInference(example.graph, example.info).infer(example.graph)
    assert not inferred.failures
    assert inferred.constant(example.graph.outputs[1]) is None
