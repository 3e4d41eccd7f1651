from __future__ import annotations

import numpy as np
import pytest

from partc.ir.graph import Constant, Module
from partc.ir.sizes import SizeInference, assign_sizes
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from passes.canonicalize import MAX_SWEEPS, canonicalize
from tests.passes.interpreter import Checkpoint, run


def module(body: str, opset: int = 24) -> Module:
    header = 'model {"name": "test", "task": "graph", "max_sequence": 64, "dims": {"sequence": 64}}'
    result = parse_module(f"partc-ir 1\n{header}\ngraph test opset {opset} {{\n{body}\n}}\n")
    assign_sizes(result.graph, SizeInference(result.graph, result.info).infer(result.graph))
    return result


def check(body: str, expected: str, *, same_numbers: bool = True) -> Module:
    """Canonicalize `body`: it must print as `expected`, settle at once and compute what it did."""
    before, result = module(body), module(body)
    canonicalize(result)
    verify(result, "imported")
    wanted = [line.strip() for line in expected.strip().splitlines()]
    found = [line.strip() for line in print_module(result).splitlines()]
    assert found[3:-1] == wanted
    assert not canonicalize(result)
    if same_numbers:
        compare(before, result)
    return result


def compare(before: Module, after: Module) -> None:
    """Both graphs make the same numbers from the same inputs, for several sizes."""
    checkpoint = Checkpoint(before.graph)
    for batch, sequence in ((2, 5), (1, 1), (3, 2)):
        sizes = {"batch": batch, "sequence": sequence}
        generator = np.random.default_rng(7)
        feeds = {}
        for value in before.graph.inputs:
            shape = [dim if isinstance(dim, int) else sizes[dim] for dim in value.shape or ()]
            floats = generator.normal(size=shape).astype(np.float32)
            feeds[value.name] = floats if value.dtype == "f32" else np.zeros(shape, np.int64)
            if value.name == "index":
                feeds["index"] = np.arange(sequence)
        expected = run(before.graph, feeds, checkpoint)
        for left, right in zip(expected, run(after.graph, feeds, checkpoint), strict=True):
            np.testing.assert_array_equal(left, right)


def test_constants_are_computed() -> None:
    check(
        """
        input %x: f32[batch, 4]
        const %a = f32[] [2]
        const %b = f32[] [3]
        %c: ?[?] = Add(%a, %b)
        %d: ?[?] = Sqrt(%c)
        %y: ?[?] = Mul(%x, %d)
        output %y
        """,
        """
        input %x: f32[batch, 4]
        const %d = f32[] [2.236068]
        %y: f32[batch, 4] = Mul(%x, %d)
        output %y
        """,
    )


def test_weights_are_never_read_and_large_tables_stay_nodes() -> None:
    result = module("""
        const %zero = f32[] [0]
        const %one = f32[] [1]
        const %many = f32[] [100000]
        %table: ?[?] = Range(%zero, %many, %one)
        %y: ?[?] = Cos(%table)
        output %y
    """)
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["Range", "Cos"]
    assert all(isinstance(leaf, Constant) and leaf.shape == () for leaf in result.graph.leaves())


def test_random_numbers_are_neither_computed_nor_merged() -> None:
    result = module("""
        %a: ?[?] = RandomNormal() {shape = [4]}
        %b: ?[?] = RandomNormal() {shape = [4]}
        %y: ?[?] = Sub(%a, %b)
        output %y
    """)
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["RandomNormal", "RandomNormal", "Sub"]


def test_views_of_weights_move_into_their_references() -> None:
    check(
        """
        input %x: f32[batch, 8]
        weight %raw = f32[16, 8] from "m"#"raw"
        weight %w = f32[24, 8] from "m"#"w"
        const %zero = i64[1] [0]
        const %one = i64[1] [1]
        const %eight = i64[1] [8]
        const %end = i64[1] [24]
        const %half = f32[] [0.5]
        %keep: ?[?] = Gather(%raw, %zero)
        %t: ?[?] = Transpose(%w) {perm = [1, 0]}
        %cut: ?[?] = Slice(%t, %eight, %end, %one)
        %a: ?[?] = MatMul(%x, %cut)
        %scaled: ?[?] = Mul(%raw, %half)
        %turned: ?[?] = Transpose(%scaled) {perm = [1, 0]}
        %b: ?[?] = MatMul(%x, %turned)
        %whole: ?[?] = MatMul(%x, %t)
        output %a, %b, %keep, %whole
        """,
        """
        input %x: f32[batch, 8]
        weight %raw = f32[16, 8] from "m"#"raw"
        const %zero = i64[1] [0]
        weight %w.slice = f32[8, 16] from "m"#"w" |> transpose(1, 0) |> slice(1, 8, 24)
        weight %raw.mul = f32[8, 16] from "m"#"raw" |> mul(0.5) |> transpose(1, 0)
        weight %w = f32[8, 24] from "m"#"w" |> transpose(1, 0)
        %keep: f32[1, 8] = Gather(%raw, %zero)
        %a: f32[batch, 16] = MatMul(%x, %w.slice)
        %b: f32[batch, 16] = MatMul(%x, %raw.mul)
        %whole: f32[batch, 24] = MatMul(%x, %w)
        output %a, %b, %keep, %whole
        """,
    )


def test_a_tied_embedding_is_one_tensor_with_two_references() -> None:
    result = check(
        """
        input %ids: i64[batch, sequence]
        weight %embed = f32[16, 8] from "m"#"embed"
        %x: ?[?] = Gather(%embed, %ids)
        %t: ?[?] = Transpose(%embed) {perm = [1, 0]}
        %y: ?[?] = MatMul(%x, %t)
        output %y
        """,
        """
        input %ids: i64[batch, sequence]
        weight %embed = f32[16, 8] from "m"#"embed"
        weight %embed.transpose = f32[8, 16] from "m"#"embed" |> transpose(1, 0)
        %x: f32[batch, sequence, 8] = Gather(%embed, %ids)
        %y: f32[batch, sequence, 16] = MatMul(%x, %embed.transpose)
        output %y
        """,
    )
    assert len(result.graph.weights()) == 2


def test_one_plus_weight_and_joined_weights() -> None:
    check(
        """
        input %x: f32[batch, 8]
        weight %w = f32[8] from "m"#"w"
        weight %a = f32[8, 2] from "m"#"a"
        weight %b = f32[8, 3] from "m"#"b"
        const %one = f32[] [1]
        %scale: ?[?] = Add(%one, %w)
        %scaled: ?[?] = Mul(%x, %scale)
        %both: ?[?] = Concat(%a, %b) {axis = -1}
        %y: ?[?] = MatMul(%scaled, %both)
        output %y
        """,
        """
        input %x: f32[batch, 8]
        weight %w = f32[8] from "m"#"w" |> add(1.0)
        weight %a = f32[8, 5] from concat(1, "m"#"a", "m"#"b")
        %scaled: f32[batch, 8] = Mul(%x, %w)
        %y: f32[batch, 5] = MatMul(%scaled, %a)
        output %y
        """,
    )


def test_large_weights_with_other_readers_are_not_copied() -> None:
    result = module("""
        input %x: f32[batch, 256]
        weight %w = f32[256, 256] from "m"#"w"
        const %half = f32[] [0.5]
        %scaled: ?[?] = Mul(%w, %half)
        %a: ?[?] = MatMul(%x, %scaled)
        %b: ?[?] = MatMul(%a, %w)
        output %b
    """)
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["Mul", "MatMul", "MatMul"]


def test_nodes_that_change_nothing_go() -> None:
    check(
        """
        input %x: f32[batch, 4]
        const %zero = f32[] [0]
        const %one = f32[1] [1]
        const %start = i64[1] [0]
        const %end = i64[1] [99]
        const %axis = i64[1] [1]
        const %shape = i64[2] [1, 1]
        const %yes = bool[] [true]
        const %own = i64[2] [-1, 4]
        %a: ?[?] = Identity(%x)
        %b: ?[?] = Dropout(%a)
        %c: ?[?] = Cast(%b) {to = 1}
        %d: ?[?] = CastLike(%c, %zero)
        %e: ?[?] = Transpose(%d) {perm = [1, 0]}
        %f: ?[?] = Transpose(%e) {perm = [1, 0]}
        %g: ?[?] = Add(%zero, %f)
        %h: ?[?] = Mul(%g, %one)
        %i: ?[?] = Slice(%h, %start, %end, %axis)
        %j: ?[?] = Unsqueeze(%i, %axis)
        %k: ?[?] = Squeeze(%j, %axis)
        %l: ?[?] = Reshape(%k, %own)
        %m: ?[?] = Expand(%l, %shape)
        %n: ?[?] = Concat(%m) {axis = 0}
        %o: ?[?] = Where(%yes, %n, %zero)
        %y: ?[?] = Relu(%o)
        output %y
        """,
        """
        input %x: f32[batch, 4]
        %y: f32[batch, 4] = Relu(%x)
        output %y
        """,
    )


@pytest.mark.parametrize("opset", [9, 10, 13])
def test_dropout_goes_although_it_makes_a_mask(opset: int) -> None:
    result = module(
        """
        input %x: f32[batch, 4]
        %a: ?[?] = Relu(%x)
        %b: ?[?], %mask: ?[?] = Dropout(%a)
        %y: ?[?] = Sqrt(%b)
        output %y
        """,
        opset,
    )
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["Relu", "Sqrt"]


@pytest.mark.parametrize(
    "line",
    [
        "Add(%x, %wide)",  # the zeros widen x
        "Slice(%x, %last, %before, %axis, %back)",  # all of it, backwards
        "Transpose(%x) {perm = [1, 0]}",
        "Cast(%x) {to = 10}",  # to f16 and back loses digits
        "Sub(%zero, %x)",
        "Div(%one, %x)",
    ],
)
def test_nodes_that_only_look_neutral_stay(line: str) -> None:
    result = module(f"""
        input %x: f32[4, 4]
        const %wide = f32[2, 1, 1] [0, 0]
        const %zero = f32[] [0]
        const %one = f32[] [1]
        const %last = i64[1] [3]
        const %before = i64[1] [-99]
        const %axis = i64[1] [0]
        const %back = i64[1] [-1]
        %a: ?[?] = {line}
        %y: ?[?] = Cast(%a) {{to = 1}}
        %z: ?[?] = Relu(%y)
        output %z
    """)
    canonicalize(result)
    assert line.partition("(")[0] in [node.op for node in result.graph.nodes]


def test_duplicates_are_one() -> None:
    check(
        """
        input %x: f32[batch, 4]
        weight %w1 = f32[4, 4] from "m"#"w"
        weight %w2 = f32[4, 4] from "m"#"w"
        const %a = f32[] [2]
        const %b = f32[] [2]
        %c: ?[?] = MatMul(%x, %w1)
        %d: ?[?] = MatMul(%x, %w2)
        %e: ?[?] = Mul(%c, %a)
        %f: ?[?] = Mul(%d, %b)
        %y: ?[?] = Add(%e, %f)
        output %y
        """,
        """
        input %x: f32[batch, 4]
        weight %w1 = f32[4, 4] from "m"#"w"
        const %a = f32[] [2.0]
        %c: f32[batch, 4] = MatMul(%x, %w1)
        %e: f32[batch, 4] = Mul(%c, %a)
        %y: f32[batch, 4] = Add(%e, %e)
        output %y
        """,
    )


def test_outputs_keep_their_names() -> None:
    result = check(
        """
        input %x: f32[batch, 4]
        %a: ?[?] = Relu(%x)
        %logits: ?[?] = Identity(%a)
        %again: ?[?] = Identity(%a)
        %same: ?[?] = Identity(%x)
        output %logits, %again, %same
        """,
        """
        input %x: f32[batch, 4]
        %logits: f32[batch, 4] = Relu(%x)
        %again: f32[batch, 4] = Identity(%logits)
        %same: f32[batch, 4] = Identity(%x)
        output %logits, %again, %same
        """,
    )
    assert [output.name for output in result.graph.outputs] == ["logits", "again", "same"]


SPLIT_HEADS = """
    input %x: f32[batch, sequence, 8]
    const %first = i64[] [0]
    const %second = i64[] [1]
    const %axis = i64[1] [0]
    const %heads = i64[1] [2]
    const %size = i64[1] [4]
    %shape: ?[?] = Shape(%x)
    %b: ?[?] = Gather(%shape, %first)
    %s: ?[?] = Gather(%shape, %second)
    %b1: ?[?] = Unsqueeze(%b, %axis)
    %s1: ?[?] = Unsqueeze(%s, %axis)
    %target: ?[?] = Concat(%b1, %s1, %heads, %size) {axis = 0}
    %y: ?[?] = Reshape(%x, %target) {allowzero = 1}
    output %y
"""


def test_targets_of_reshape_become_constants() -> None:
    check(
        SPLIT_HEADS,
        """
        input %x: f32[batch, sequence, 8]
        const %const = i64[4] [0, 0, 2, 4]
        %y: f32[batch, sequence, 2, 4] = Reshape(%x, %const)
        output %y
        """,
    )


def test_sizes_come_from_step_inputs() -> None:
    check(
        """
        input %ids: i64[batch, sequence]
        input %position: i64[batch]
        input %index: i64[sequence]
        weight %table = f32[1, 1, 8] from "m"#"t"
        weight %embed = f32[16, 8] from "m"#"e"
        const %eight = i64[1] [8]
        const %zero = i64[] [0]
        const %one = i64[] [1]
        const %axis = i64[1] [0]
        %x: ?[?] = Gather(%embed, %ids)
        %b: ?[?] = Shape(%x) {start = 0, end = 1}
        %s: ?[?] = Shape(%x) {start = 1, end = 2}
        %target: ?[?] = Concat(%b, %s, %eight) {axis = 0}
        %wide: ?[?] = Expand(%table, %target)
        %limit: ?[?] = Squeeze(%s, %axis)
        %range: ?[?] = Range(%zero, %limit, %one)
        %y: ?[?] = Add(%x, %wide)
        %z: ?[?] = Neg(%range)
        output %y, %z
        """,
        """
        input %ids: i64[batch, sequence]
        input %position: i64[batch]
        input %index: i64[sequence]
        const %const = i64[1] [8]
        weight %embed = f32[16, 8] from "m"#"e"
        weight %table = f32[1, 1, 8] from "m"#"t"
        %size.batch: i64[1] = Shape(%position)
        %size.sequence: i64[1] = Shape(%index)
        %size.shape: i64[3] = Concat(%size.batch, %size.sequence, %const) {axis = 0}
        %x: f32[batch, sequence, 8] = Gather(%embed, %ids)
        %wide: f32[batch, sequence, 8] = Expand(%table, %size.shape)
        %y: f32[batch, sequence, 8] = Add(%x, %wide)
        %z: i64[sequence] = Neg(%index)
        output %y, %z
        """,
    )


def test_sizes_stay_where_there_are_no_step_inputs() -> None:
    result = module("""
        input %x: f32[batch, sequence, 8]
        weight %table = f32[1, 1, 8] from "m"#"t"
        %shape: ?[?] = Shape(%x)
        %wide: ?[?] = Expand(%table, %shape)
        output %wide
    """)
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["Shape", "Expand"]


def test_comparisons_of_sizes_are_known_only_where_no_size_decides() -> None:
    result = module("""
        input %x: f32[batch, sequence, 8]
        const %axis = i64[1] [0]
        const %minus = i64[1] [-1]
        const %ten = i64[1] [10]
        %s: ?[?] = Shape(%x) {start = 1, end = 2}
        %never: ?[?] = Equal(%s, %minus)
        %maybe: ?[?] = Equal(%s, %ten)
        %n: ?[?] = Not(%never)
        %m: ?[?] = Not(%maybe)
        output %n, %m
    """)
    canonicalize(result)
    assert [node.name for node in result.graph.nodes if node.op == "Equal"] == ["maybe"]


def test_lists_of_tensors_become_splits() -> None:
    check(
        """
        input %x: f32[batch, 10]
        const %size = i64[] [4]
        const %zero = i64[] [0]
        const %two = i64[] [2]
        %parts: ?[?] = SplitToSequence(%x, %size) {axis = -1, keepdims = 1}
        %a: ?[?] = SequenceAt(%parts, %zero)
        %b: ?[?] = SequenceAt(%parts, %two)
        %c: ?[?] = Relu(%a)
        %d: ?[?] = Relu(%b)
        output %c, %d
        """,
        """
        input %x: f32[batch, 10]
        const %parts.sizes = i64[3] [4, 4, 2]
        %a: f32[batch, 4], %parts.1: f32[batch, 4], %b: f32[batch, 2] = Split(%x, %parts.sizes) {axis = -1}
        %c: f32[batch, 4] = Relu(%a)
        %d: f32[batch, 2] = Relu(%b)
        output %c, %d
        """,
        same_numbers=False,
    )


def test_lists_behind_lists_become_splits_in_models_of_many_layers() -> None:
    """The size of what a list is made of is known once the one before is a `Split`."""
    layers = 2 * MAX_SWEEPS
    lines = [
        f"""
        %parts.{layer}: ?[?] = SplitToSequence(%x.{layer}, %size) {{axis = -1, keepdims = 1}}
        %a.{layer}: ?[?] = SequenceAt(%parts.{layer}, %zero)
        %x.{layer + 1}: ?[?] = Concat(%a.{layer}, %a.{layer}) {{axis = -1}}
        """
        for layer in range(layers)
    ]
    result = module(
        "input %x.0: f32[batch, 8]\nconst %size = i64[] [4]\nconst %zero = i64[] [0]\n"
        + "\n".join(lines)
        + f"\noutput %x.{layers}"
    )
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["Split", "Concat"] * layers


def test_states_are_updated_even_where_nobody_reads_the_result() -> None:
    result = module("""
        input %new: f32[batch, 2, sequence, 4]
        input %position: i64[batch]
        state %cache.0.key: f32[batch, 2, 64, 4]
        %full: ?[?] = partc.UpdateState(%cache.0.key, %new, %position)
        %dead: ?[?] = Relu(%new)
        %y: ?[?] = Neg(%new)
        output %y
    """)
    canonicalize(result)
    assert [node.op for node in result.graph.nodes] == ["partc.UpdateState", "Neg"]
