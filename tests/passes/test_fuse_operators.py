from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from partc.errors import UserError
from partc.format.dims import evaluate
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from partc.pipeline.registry import load_pass
from passes.canonicalize import canonicalize
from passes.fuse_operators import FUSIONS, FuseOperators, fuse_operators
from passes.infer_sizes import infer_sizes
from tests.passes.interpreter import Checkpoint, run

LEAVES = """
    weight %w = f32[8] from "m"#"w"
    weight %b = f32[8] from "m"#"b"
    const %zero = f32[] [0]
    const %half = f32[] [0.5]
    const %one = f32[] [1]
    const %two = f32[] [2]
    const %three = f32[] [3]
    const %eps = f32[] [1e-6]
    const %last = i64[1] [-1]
    const %first = i64[1] [1]
"""


def module(body: str, opset: int = 24) -> Module:
    header = 'model {"name": "test", "task": "graph", "max_sequence": 64}'
    result = parse_module(f"partc-ir 1\n{header}\ngraph test opset {opset} {{\n{LEAVES}{body}\n}}\n")
    infer_sizes(result)
    verify(result, "sized")
    return result


def operators(example: Module) -> list[str]:
    return [node.op for node in example.graph.nodes]


def fused(body: str, opset: int = 24, tolerance: float = 2e-6) -> Module:
    """The graph after all fusions; it must compute what it did before."""
    before, after = module(body, opset), module(body, opset)
    fuse_operators(after.graph)
    verify(after, "sized")
    assert print_module(parse_module(print_module(after))) == print_module(after)
    generator = np.random.default_rng(3)
    for batch, sequence in ((2, 5), (1, 1)):
        sizes = {"batch": batch, "sequence": sequence}
        feeds = {}
        for value in before.graph.inputs:
            shape = [evaluate(dim, sizes) for dim in value.shape or ()]
            feeds[value.name] = generator.normal(size=shape).astype(np.float32)
        checkpoint = Checkpoint(before.graph)
        expected = run(before.graph, feeds, checkpoint)
        for left, right in zip(expected, run(after.graph, feeds, checkpoint), strict=True):
            assert np.allclose(left.astype(np.float64), right.astype(np.float64), tolerance, tolerance, True)
    return after


RMS = """
    input %x: f32[batch, sequence, 8]
    %square: ?[?] = Pow(%x, %two)
    %mean: ?[?] = ReduceMean(%square, %last)
    %shifted: ?[?] = Add(%mean, %eps)
    %root: ?[?] = Sqrt(%shifted)
    %inverse: ?[?] = Reciprocal(%root)
    %normal: ?[?] = Mul(%x, %inverse)
    %y: ?[?] = Mul(%w, %normal)
    output %y
"""


def test_rms_normalization() -> None:
    after = fused(RMS)
    line = next(line for line in print_module(after).splitlines() if "%y:" in line)
    assert line.strip() == (
        "%y: f32[batch, sequence, 8] = RMSNormalization(%x, %w) {axis = -1, epsilon = 1e-06, stash_type = 1}"
    ).replace("1e-06", repr(float(np.float32(1e-6))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Pow(%x, %two)", "Mul(%x, %x)"),
        ("Mul(%w, %normal)", "Mul(%normal, %w)"),
        ("Mul(%x, %inverse)", "Mul(%inverse, %x)"),
        ("Mul(%x, %inverse)", "Div(%x, %root)"),
        ("Reciprocal(%root)", "Div(%one, %root)"),
        ("Add(%mean, %eps)", "Add(%eps, %mean)"),
        ("Mul(%w, %normal)", "Relu(%normal)"),  # no weight: the scale is ones
    ],
)
def test_rms_normalization_in_other_words(old: str, new: str) -> None:
    assert "RMSNormalization" in operators(fused(RMS.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Pow(%x, %two)", "Pow(%x, %three)"),
        ("ReduceMean(%square, %last)", "ReduceMean(%square, %first)"),
        ("ReduceMean(%square, %last)", "ReduceSum(%square, %last)"),
        ("output %y", "%other: ?[?] = Relu(%root)\noutput %y, %other"),
        ("Mul(%x, %inverse)", "Mul(%b, %inverse)"),
    ],
)
def test_near_misses_of_rms_normalization_stay(old: str, new: str) -> None:
    assert "RMSNormalization" not in operators(fused(RMS.replace(old, new)))


def test_rms_normalization_takes_in_the_casts_around_it() -> None:
    half = module("""
        input %x: f16[batch, sequence, 8]
        weight %v = f16[8] from "m"#"v"
        %wide: ?[?] = Cast(%x) {to = 1}
        %square: ?[?] = Pow(%wide, %two)
        %mean: ?[?] = ReduceMean(%square, %last)
        %shifted: ?[?] = Add(%mean, %eps)
        %root: ?[?] = Sqrt(%shifted)
        %inverse: ?[?] = Reciprocal(%root)
        %normal: ?[?] = Mul(%wide, %inverse)
        %back: ?[?] = Cast(%normal) {to = 10}
        %y: ?[?] = Mul(%v, %back)
        output %y
    """)
    fuse_operators(half.graph)
    assert operators(half) == ["RMSNormalization"]
    assert [value.dtype for value in half.graph.nodes[0].operands] == ["f16", "f16"]


LAYER = """
    input %x: f32[batch, sequence, 8]
    %center: ?[?] = ReduceMean(%x, %last)
    %moved: ?[?] = Sub(%x, %center)
    %square: ?[?] = Pow(%moved, %two)
    %mean: ?[?] = ReduceMean(%square, %last)
    %shifted: ?[?] = Add(%mean, %eps)
    %root: ?[?] = Sqrt(%shifted)
    %normal: ?[?] = Div(%moved, %root)
    %scaled: ?[?] = Mul(%normal, %w)
    %y: ?[?] = Add(%scaled, %b)
    output %y
"""


def test_layer_normalization() -> None:
    assert operators(fused(LAYER)) == ["LayerNormalization"]
    assert operators(fused(LAYER, opset=20)) == ["LayerNormalization"]
    assert operators(fused(LAYER.replace("Add(%scaled, %b)", "Relu(%scaled)"))) == [
        "LayerNormalization",
        "Relu",
    ]


def test_near_misses_of_layer_normalization_stay() -> None:
    assert "LayerNormalization" not in operators(fused(LAYER.replace("Sub(%x, %center)", "Sub(%center, %x)")))
    shared = LAYER.replace("output %y", "%other: ?[?] = Relu(%scaled)\noutput %y, %other")
    assert "Add" in operators(fused(shared))


ROTARY = """
    input %x: f32[batch, 4, sequence, 8]
    input %angles: f32[batch, sequence, 4]
    const %factor = f32[] [1.25]
    const %start = i64[1] [0]
    const %middle = i64[1] [4]
    const %end = i64[1] [9223372036854775807]
    const %axis = i64[1] [3]
    %other0: ?[?] = Sigmoid(%x)
    %both: ?[?] = Concat(%angles, %angles) {axis = -1}
    %cos: ?[?] = Cos(%both)
    %cos_scaled: ?[?] = Mul(%cos, %factor)
    %sin: ?[?] = Sin(%both)
    %cos4: ?[?] = Unsqueeze(%cos_scaled, %first)
    %sin4: ?[?] = Unsqueeze(%sin, %first)
    %straight: ?[?] = Mul(%x, %cos4)
    %low: ?[?] = Slice(%x, %start, %middle, %axis, %first)
    %high: ?[?] = Slice(%x, %middle, %end, %axis, %first)
    %minus: ?[?] = Neg(%high)
    %turned: ?[?] = Concat(%minus, %low) {axis = -1}
    %across: ?[?] = Mul(%turned, %sin4)
    %y: ?[?] = Add(%straight, %across)
    output %y
"""


def test_rotary_embedding() -> None:
    after = fused(ROTARY)
    assert operators(after) == ["Cos", "Mul", "Sin", "RotaryEmbedding"]
    assert [value.shape for value in after.graph.nodes[-1].operands] == [
        ("batch", 4, "sequence", 8),
        ("batch", "sequence", 4),
        ("batch", "sequence", 4),
    ]


def test_rotary_embedding_makes_its_tables_once() -> None:
    second = ROTARY.replace("output %y", "").replace("%x", "%k")
    for name in ("straight", "low", "high", "minus", "turned", "across", "y"):
        second = second.replace(f"%{name}", f"%{name}2")
    lines = [line for line in second.splitlines() if "2: ?" in line or "input %k" in line]
    both = ROTARY.replace("output %y", "\n".join([*lines, "output %y, %y2"]))
    assert Counter(operators(fused(both))) == {"Cos": 1, "Mul": 1, "Sin": 1, "RotaryEmbedding": 2}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Concat(%angles, %angles)", "Concat(%angles, %others)"),  # the halves differ
        ("Concat(%minus, %low)", "Concat(%low, %minus)"),
        ("Neg(%high)", "Relu(%high)"),
        ("%low: ?[?] = Slice(%x, %start, %middle", "%low: ?[?] = Slice(%other0, %start, %middle"),
        ("output %y", "%other: ?[?] = Relu(%turned)\noutput %y, %other"),
    ],
)
def test_near_misses_of_rotary_embedding_stay(old: str, new: str) -> None:
    others = "input %others: f32[batch, sequence, 4]\nconst %factor"
    body = ROTARY.replace(old, new).replace("const %factor", others)
    assert "RotaryEmbedding" not in operators(fused(body))


def test_partial_rotary_embedding() -> None:
    body = ROTARY.replace("input %x:", "input %whole:").replace("4, sequence, 8]", "4, sequence, 12]")
    head = """
    const %eight = i64[1] [8]
    %x: ?[?] = Slice(%whole, %start, %eight, %axis, %first)
    %rest: ?[?] = Slice(%whole, %eight, %end, %axis, %first)
    %both:"""
    body = body.replace("    %other0: ?[?] = Sigmoid(%x)\n", "").replace("%both:", head, 1)
    body = body.replace("output %y", "%z: ?[?] = Concat(%y, %rest) {axis = -1}\noutput %z")
    after = fused(body)
    assert operators(after) == ["Cos", "Mul", "Sin", "RotaryEmbedding"]
    assert after.graph.nodes[-1].attributes == {"interleaved": 0, "rotary_embedding_dim": 8}


def test_interleaved_rotary_embedding() -> None:
    after = fused("""
        input %x: f32[batch, 4, sequence, 8]
        input %angles: f32[batch, sequence, 4]
        const %start = i64[1] [0]
        const %step = i64[1] [2]
        const %end = i64[1] [9223372036854775807]
        const %axis = i64[1] [3]
        const %pair = i64[4] [1, 1, 1, 2]
        const %table = i64[3] [0, 0, 8]
        const %flat = i64[4] [0, 0, 0, 8]
        %wrapped: ?[?] = Unsqueeze(%angles, %last)
        %pairs: ?[?] = Expand(%wrapped, %pair)
        %both: ?[?] = Reshape(%pairs, %table)
        %cos: ?[?] = Cos(%both)
        %sin: ?[?] = Sin(%both)
        %cos4: ?[?] = Unsqueeze(%cos, %first)
        %sin4: ?[?] = Unsqueeze(%sin, %first)
        %straight: ?[?] = Mul(%x, %cos4)
        %even: ?[?] = Slice(%x, %start, %end, %axis, %step)
        %odd: ?[?] = Slice(%x, %first, %end, %axis, %step)
        %minus: ?[?] = Neg(%odd)
        %left: ?[?] = Unsqueeze(%minus, %last)
        %right: ?[?] = Unsqueeze(%even, %last)
        %stack: ?[?] = Concat(%left, %right) {axis = -1}
        %turned: ?[?] = Reshape(%stack, %flat)
        %across: ?[?] = Mul(%turned, %sin4)
        %y: ?[?] = Add(%straight, %across)
        output %y
    """)
    assert operators(after) == ["Cos", "Sin", "RotaryEmbedding"]
    assert after.graph.nodes[-1].attributes == {"interleaved": 1}


ERF = """
    input %x: f32[batch, 8]
    const %root2 = f32[] [1.4142135]
    %small: ?[?] = Div(%x, %root2)
    %curve: ?[?] = Erf(%small)
    %gate: ?[?] = Add(%curve, %one)
    %halved: ?[?] = Mul(%x, %half)
    %y: ?[?] = Mul(%halved, %gate)
    output %y
"""
TANH = """
    input %x: f32[batch, 8]
    const %c = f32[] [0.044715]
    const %r = f32[] [0.7978846]
    %cube: ?[?] = Pow(%x, %three)
    %bent: ?[?] = Mul(%cube, %c)
    %sum: ?[?] = Add(%x, %bent)
    %inner: ?[?] = Mul(%sum, %r)
    %curve: ?[?] = Tanh(%inner)
    %gate: ?[?] = Add(%curve, %one)
    %halved: ?[?] = Mul(%x, %half)
    %y: ?[?] = Mul(%halved, %gate)
    output %y
"""
FAST = """
    input %x: f32[batch, 8]
    const %c = f32[] [0.044715]
    const %r = f32[] [0.7978846]
    %scaled: ?[?] = Mul(%x, %r)
    %bent: ?[?] = Mul(%x, %c)
    %square: ?[?] = Mul(%bent, %x)
    %sum: ?[?] = Add(%square, %one)
    %inner: ?[?] = Mul(%scaled, %sum)
    %curve: ?[?] = Tanh(%inner)
    %gate: ?[?] = Add(%curve, %one)
    %halved: ?[?] = Mul(%x, %gate)
    %y: ?[?] = Div(%halved, %two)
    output %y
"""


@pytest.mark.parametrize(("body", "approximate"), [(ERF, "none"), (TANH, "tanh"), (FAST, "tanh")])
def test_gelu(body: str, approximate: str) -> None:
    after = fused(body)
    assert operators(after) == ["Gelu"]
    assert after.graph.nodes[0].attributes == {"approximate": approximate}


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        (ERF, "1.4142135", "1.5"),
        (ERF, "Mul(%x, %half)", "Mul(%x, %two)"),
        (ERF, "Add(%curve, %one)", "Add(%curve, %two)"),
        (TANH, "0.044715", "0.05"),
        (TANH, "Pow(%x, %three)", "Pow(%x, %two)"),
        (TANH, "output %y", "%other: ?[?] = Relu(%curve)\noutput %y, %other"),
        (FAST, "Mul(%bent, %x)", "Mul(%bent, %one)"),
    ],
)
def test_near_misses_of_gelu_stay(body: str, old: str, new: str) -> None:
    assert old in body
    assert "Gelu" not in operators(fused(body.replace(old, new)))


SWISH = """
    input %x: f32[batch, 8]
    %gate: ?[?] = Sigmoid(%x)
    %y: ?[?] = Mul(%gate, %x)
    output %y
"""


def test_swish() -> None:
    after = fused(SWISH)
    assert operators(after) == ["Swish"]
    assert after.graph.nodes[0].attributes == {"alpha": 1.0}
    quick = SWISH.replace("Sigmoid(%x)", "Sigmoid(%large)").replace(
        "%gate:", "%large: ?[?] = Mul(%x, %two)\n%gate:"
    )
    assert fused(quick).graph.nodes[0].attributes == {"alpha": 2.0}


def test_near_misses_of_swish_stay() -> None:
    assert "Swish" not in operators(fused(SWISH.replace("Mul(%gate, %x)", "Mul(%gate, %one)")))
    assert "Swish" not in operators(fused(SWISH.replace("output %y", "output %y, %gate")))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("rms-normalization", RMS),
        ("layer-normalization", LAYER),
        ("rotary-embedding", ROTARY),
        ("gelu", ERF),
        ("swish", SWISH),
    ],
)
def test_fusions_can_be_disabled_and_need_their_opset(name: str, body: str) -> None:
    text = print_module(module(body))
    others = {other for other in FUSIONS if other != name}
    assert fuse_operators(parse_module(text).graph, others)
    disabled = parse_module(text)
    assert not fuse_operators(disabled.graph, {name, *others})
    assert print_module(disabled) == text
    older = parse_module(text)
    older.graph.opset = FUSIONS[name][0] - 1
    assert not fuse_operators(older.graph, others)


def test_disable_names_are_checked() -> None:
    chosen = load_pass("fuse-operators{disable=gelu; swish}")
    assert chosen == FuseOperators(disable="gelu; swish")
    with pytest.raises(UserError, match="there is no fusion 'gleu'"):
        FuseOperators(disable="gleu").apply(module(ERF), None)  # type: ignore[arg-type]


def test_a_whole_layer_becomes_few_nodes() -> None:
    example = module(
        RMS.replace("output %y", "%gate: ?[?] = Sigmoid(%y)\n%z: ?[?] = Mul(%y, %gate)\noutput %z")
    )
    canonicalize(example)
    fuse_operators(example.graph)
    assert operators(example) == ["RMSNormalization", "Swish"]


def test_long_products_cost_no_more_than_they_must() -> None:
    lines = [f"%x{i + 1}: ?[?] = Mul(%x{i}, %x{i})" for i in range(2000)]
    example = module("\n".join(["input %x0: f32[batch, 8]", *lines, "output %x2000"]))
    assert not fuse_operators(example.graph)
