"""Operators that onnxruntime runs as they are, or that are lowered one by one, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from partc.errors import UserError
from partc.ir.text import parse_module
from targets.ort import OrtTarget
from tests.targets.numpy_attention import Array, attention, update
from tests.targets.ort_session import Session

pytestmark = pytest.mark.ort


def graph(lines: str, opset: int = 24) -> str:
    return f'partc-ir 1\nmodel {{"name": "m", "task": "graph"}}\ngraph part_0 opset {opset} {{\n{lines}\n}}\n'


def unary(op: str, attributes: str = "") -> str:
    return graph(f"input %x: f32[batch,8]\n%y: f32[batch,8] = {op}(%x) {attributes}\noutput %y")


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (unary("Gelu"), gelu),
        (unary("Gelu", '{approximate="tanh"}'), gelu_tanh),
        (unary("Swish"), lambda x: x / (1 + np.exp(-x))),
        (unary("Swish", "{alpha=1.702}"), lambda x: x / (1 + np.exp(-1.702 * x))),
    ],
)
def test_activations(tmp_path: Path, text: str, expected: Callable[[Array], Array]) -> None:
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_allclose(Session(text, tmp_path).run(x=x)["y"], expected(x), atol=1e-5)


def test_rms_normalization(tmp_path: Path) -> None:
    text = graph("""input %x: f32[batch,sequence,8]
input %w: f32[8]
%y: f32[batch,sequence,8] = RMSNormalization(%x, %w) {axis=-1, epsilon=0.00001}
output %y""")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(Session(text, tmp_path).run(x=x, w=w)["y"], expected, atol=1e-5)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding of x [batch, heads, sequence, d], halves apart; cos, sin [batch, sequence, d/2]."""
    first, second = np.split(x, 2, -1)
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([first * c - second * s, second * c + first * s], -1)


def test_norms_of_heads_let_transposes_cancel(tmp_path: Path) -> None:
    """As in Gemma 3, which normalises the heads after it has swapped them."""
    session = Session(
        graph("""input %x: f32[batch,sequence,4,8]
input %w: f32[8]
%h: f32[batch,4,sequence,8] = Transpose(%x) {perm=[0, 2, 1, 3]}
%n: f32[batch,4,sequence,8] = RMSNormalization(%h, %w) {axis=-1, epsilon=0.00001}
%y: f32[batch,sequence,4,8] = Transpose(%n) {perm=[0, 2, 1, 3]}
output %y"""),
        tmp_path,
    )
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 4, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(session.run(x=x, w=w)["y"], expected, atol=1e-5)
    assert session.operators()[0] == "RMSNormalization"


def test_rotary_embedding_between_heads_and_attention_needs_no_transpose(tmp_path: Path) -> None:
    lines = """input %x: f32[batch,sequence,32]
input %k: f32[batch,sequence,2,8]
input %cos: f32[batch,sequence,4]
input %sin: f32[batch,sequence,4]
input %position: i64[batch]
const %split = i64[4] [0, 0, 4, 8]
state %ck: f32[batch,2,16,8]
state %cv: f32[batch,2,16,8]
%rows: f32[batch,sequence,4,8] = Reshape(%x, %split)
%q: f32[batch,4,sequence,8] = Transpose(%rows) {perm=[0, 2, 1, 3]}
%kt: f32[batch,2,sequence,8] = Transpose(%k) {perm=[0, 2, 1, 3]}
%qr: f32[batch,4,sequence,8] = RotaryEmbedding(%q, %cos, %sin)
%kr: f32[batch,2,sequence,8] = RotaryEmbedding(%kt, %cos, %sin)
%keys: f32[batch,2,16,8] = partc.UpdateState(%ck, %kr, %position)
%values: f32[batch,2,16,8] = partc.UpdateState(%cv, %kt, %position)
%a: f32[batch,4,sequence,8] = partc.Attention(%q2, %keys, %values, %position) {scale=0.25, causal=1}
output %a""".replace("%q2", "%qr")
    session = Session(graph(lines), tmp_path)
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    x, k, cos, sin = draw(2, 5, 32), draw(2, 5, 2, 8), draw(2, 5, 4), draw(2, 5, 4)
    position, empty = np.zeros(2, np.int64), np.zeros((2, 2, 16, 8), np.float32)
    session.set_state("ck", empty)
    session.set_state("cv", empty)
    out = session.run(x=x, k=k, cos=cos, sin=sin, position=position)["a"]
    q, new = x.reshape(2, 5, 4, 8).transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3)
    keys, values = update(empty, rotate(new, cos, sin), position), update(empty, new, position)
    np.testing.assert_allclose(
        out, attention(rotate(q, cos, sin), keys, values, position, scale=0.25), atol=1e-5
    )
    assert session.operators().count("Transpose") == 1  # the output, which this graph wants by heads


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_without_a_cache(tmp_path: Path, causal: int, masked: bool) -> None:
    """Encoders and one-step decoders: keys are those of the step."""
    operands = "%q, %k, %v, %position" + (", %mask" if masked else "")
    lines = f"""input %q: f32[batch,4,sequence,8]
input %k: f32[batch,2,sequence,8]
input %v: f32[batch,2,sequence,8]
input %position: i64[batch]
input %mask: bool[batch,1,1,sequence]
%a: f32[batch,4,sequence,8] = partc.Attention({operands}) {{scale=0.3, causal={causal}}}
output %a"""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 6, 8)).astype(np.float32) for heads in (4, 2, 2))
    mask, position = (
        np.arange(6)[None, None, None] < np.array([6, 4])[:, None, None, None],
        np.zeros(2, np.int64),
    )
    out = Session(graph(lines), tmp_path).run(q=q, k=k, v=v, position=position, mask=mask)["a"]
    expected = attention(q, k, v, position, scale=0.3, causal=bool(causal), mask=mask if masked else None)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_an_encoder_that_splits_heads_needs_no_transpose(tmp_path: Path) -> None:
    split = "\n".join(
        f"""%{n}4: f32[batch,sequence,4,8] = Reshape(%{n}, %split)
%{n}h: f32[batch,4,sequence,8] = Transpose(%{n}4) {{perm=[0, 2, 1, 3]}}"""
        for n in "qkv"
    )
    lines = f"""input %q: f32[batch,sequence,32]
input %k: f32[batch,sequence,32]
input %v: f32[batch,sequence,32]
input %mask: bool[batch,1,1,sequence]
const %split = i64[4] [0, 0, 4, 8]
const %join = i64[3] [0, 0, 32]
{split}
%a: f32[batch,4,sequence,8] = partc.Attention(%qh, %kh, %vh, _, %mask) {{scale=0.3, causal=0, softcap=3.0}}
%rows: f32[batch,sequence,4,8] = Transpose(%a) {{perm=[0, 2, 1, 3]}}
%out: f32[batch,sequence,32] = Reshape(%rows, %join)
output %out"""
    rng = np.random.default_rng(0)
    flat = [rng.standard_normal((2, 6, 32)).astype(np.float32) for _ in range(3)]
    mask = np.arange(6)[None, None, None] < np.array([6, 4])[:, None, None, None]
    session = Session(graph(lines), tmp_path)
    out = session.run(q=flat[0], k=flat[1], v=flat[2], mask=mask)["out"]
    q, k, v = (array.reshape(2, 6, 4, 8).transpose(0, 2, 1, 3) for array in flat)
    start = np.zeros(2, np.int64)
    expected = attention(q, k, v, start, scale=0.3, causal=False, mask=mask, softcap=3.0)
    np.testing.assert_allclose(out, expected.transpose(0, 2, 1, 3).reshape(2, 6, 32), atol=1e-5)
    assert "Transpose" not in session.operators()


def test_a_cache_read_by_plain_operators_and_by_two_attentions(tmp_path: Path) -> None:
    """As in BLOOM (plain operators) and in models whose layers share a cache."""
    lines = """input %q: f32[batch,2,sequence,8]
input %k: f32[batch,2,sequence,8]
input %position: i64[batch]
state %c: f32[batch,2,16,8]
%keys: f32[batch,2,16,8] = partc.UpdateState(%c, %k, %position)
%a: f32[batch,2,sequence,8] = partc.Attention(%q, %keys, %keys, %position) {scale=0.3, causal=1}
%b: f32[batch,2,sequence,8] = partc.Attention(%a, %keys, %keys, %position) {scale=0.3, causal=1}
%turned: f32[batch,2,8,16] = Transpose(%keys) {perm=[0, 1, 3, 2]}
%scores: f32[batch,2,sequence,16] = MatMul(%q, %turned)
output %b, %scores"""
    session = Session(graph(lines), tmp_path)
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((3, 2, 2, 8)).astype(np.float32) for _ in range(2))
    cache, position = rng.standard_normal((3, 2, 16, 8)).astype(np.float32), np.array([0, 14, 5])
    session.set_state("c", cache)
    out = session.run(q=q, k=k, position=position)
    keys = update(cache, k, position)
    first = attention(q, keys, keys, position, scale=0.3)
    np.testing.assert_allclose(out["b"], attention(first, keys, keys, position, scale=0.3), atol=1e-5)
    np.testing.assert_allclose(out["scores"], q @ keys.transpose(0, 1, 3, 2), atol=1e-5)
    np.testing.assert_array_equal(session.state("c"), keys)
    assert session.operators().count("LessOrEqual") == 1  # one mask for both attentions
    assert session.operators().count("TensorScatter") == 1


def test_outputs_may_be_weights_and_inputs(tmp_path: Path) -> None:
    session = Session(
        graph("input %x: f32[n]\nconst %c = f32[2] [1.0, 2.0]\n%y: f32[n] = Neg(%x)\noutput %c, %y, %c"),
        tmp_path,
    )
    out = session.run(x=np.array([3.0], np.float32))
    np.testing.assert_array_equal(out["c"], [1, 2])
    assert session.entry.outputs == ("c", "y")


def test_whole_numbers_for_float_attributes(tmp_path: Path) -> None:
    session = Session(unary("LeakyRelu", "{alpha=2}"), tmp_path)
    np.testing.assert_allclose(session.run(x=np.full((1, 8), -1, np.float32))["y"], -2)


@pytest.mark.parametrize("text", [unary("NoSuchOperator"), unary("Mish").replace("f32", "bf16")])
def test_an_operator_without_a_kernel_is_refused(text: str) -> None:
    module = parse_module(text)
    with pytest.raises(UserError, match="no kernel") as caught:
        OrtTarget().lower([module.graph], module.info)
    assert "node y" in (caught.value.where or "")


def test_an_unknown_provider_is_refused() -> None:
    module = parse_module(unary("Gelu"))
    with pytest.raises(UserError, match="provider"):
        OrtTarget(provider="npu").lower([module.graph], module.info)


def test_lowering_leaves_its_input_alone() -> None:
    from partc.ir.text import print_module

    module = parse_module(unary("Swish"))
    before = print_module(module)
    OrtTarget().lower([module.graph], module.info)
    assert print_module(module) == before
