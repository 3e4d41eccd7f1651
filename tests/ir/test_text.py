"""The text form: what is printed parses back to the same, and bad text names its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import InternalError, UserError
from partc.ir.graph import Constant, Graph, Input, ModelInfo, Module, Node, Value, Weight
from partc.ir.text import parse_module, print_module
from partc.ir.types import BY_NUMPY, BY_SHORT, ELEMENT_TYPES
from partc.ir.weights import Join, Leaf, Step

TEXT = """\
partc-ir 1
model {"dtype": "f32", "folder": "storyteller", "name": "t", "task": "text-generation"}
graph t opset 24 {
  input %x: i64[batch, sequence]
  weight %w = f32[4, 8] from "m.safetensors"#"a.b" |> transpose(1, 0) |> add(1.0)
  const %c = f32[2] [0.1, nan]
  state %cache.0.key: f32[batch, 2, 8, 4]
  submodule 0
  %y: f32[batch, sequence, 4] = Gather(%w, %x) {list = [1, 2], mode = "a\\"b", value = tensor f32[1] [0.0]} @ embed
  submodule 1
  cut %z: ?[?], %"od d": f32[2*sequence + 1] = partc.Foo(%y, _, %c, %cache.0.key)
  output %z
}
sdm 0 -> 1: %y
rdm none
profile 0 {"phases": {"p": {"crossing_bytes": 7, "flops": 1, "peak_bytes": 3, "read_bytes": 2}}, \
"shared": {}, "state_bytes": 5, "weight_bytes": 4}
plan {"answer": {"assignment": ["phone", "phone", "board"], "gap": 0.0, "value": 50}, "problem": {"any": ["json", 1]}}
part phone target ort {
  program prefill
    run part_0 (x) -> (y)
    emit y
  end
  graph part_0 opset 24 {
    input %x: i64[1]
    %y: i64[1] = Identity(%x)
    output %y
  }
  graph part_2 opset 24 {
    input %z: i64[1]
    output %z
  }
}
"""


def _filled(text: str) -> str:
    """The text as this version prints it: with the defaults of the header."""
    return print_module(parse_module(text))


def test_everything_survives_a_round_trip() -> None:
    once = _filled(TEXT)
    assert _filled(once) == once
    assert once.splitlines()[2:] == TEXT.splitlines()[2:]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("partc-ir 1", "partc-ir 9", "IR version 9"),
        ("Gather(%w, %x)", "Gather(%w, %nothing)", "%nothing is used before it is defined"),
        ("f32[4, 8] from", "f99[4, 8] from", "unknown element type 'f99'"),
        ("transpose(1, 0)", "rotate(1, 0)", "unknown transform 'rotate'"),
        ("const %c", "const %x", "%x is defined twice"),
        ("f32[2] [0.1, nan]", "u8[2] [255, 256]", "bad constant: Python integer 256 out of bounds"),
        ("f32[2] [0.1, nan]", "bool[2] [true, yes]", "expected true or false, found 'yes'"),
        ("f32[2] [0.1, nan]", "f32[3] [0.1, nan]", "bad constant: cannot reshape"),
        ('"a.b"', r'"a\.b"', "not valid JSON"),
        ("sdm 0 -> 1", "sdn 0 -> 1", "expected sdm, rdm"),
        ('"task"', '"tusk"', "unknown key 'tusk'"),
        (
            '"task"',
            '"quantize": {"weights": "int5"}, "task"',
            "knows none, int4, int8, int8_blocks, stored, not 'int5'",
        ),
        ('"task"', '"quantize": {"block": 24}, "task"', "a power of two, not 24"),
        ('"task"', '"quantize": {"block": true}, "task"', "a power of two, not True"),
        ('"task"', '"quantize": "int8", "task"', "a mapping of weights, head, embeddings, block"),
    ],
)
def test_bad_text_names_file_line_and_reason(old: str, new: str, said: str) -> None:
    with pytest.raises(UserError, match=r"f\.partc:") as caught:
        parse_module(TEXT.replace(old, new, 1), file="f.partc")
    assert said in str(caught.value)


@pytest.mark.parametrize("header", ["3", "[1]", '"text"', "null"])
def test_a_header_that_is_no_object_is_refused(header: str) -> None:
    with pytest.raises(UserError, match=r"f\.partc:2:.*: the model header is not a JSON object"):
        parse_module(f"partc-ir 1\nmodel {header}\ngraph t opset 24 {{\n}}\n", file="f.partc")


def test_a_text_that_stops_early_is_refused() -> None:
    with pytest.raises(UserError, match="ends too early"):
        parse_module("\n".join(TEXT.splitlines()[:6]))


_DTYPES = st.sampled_from([row.short for row in ELEMENT_TYPES if row.short != "bf16"])


@st.composite
def _arrays(draw: st.DrawFn) -> np.ndarray:
    row = BY_SHORT[draw(_DTYPES)]
    shape = draw(st.sampled_from([(), (0,), (3,), (2, 3), (9, 9)]))
    raw = draw(st.binary(min_size=16 * 81, max_size=16 * 81))
    flat = np.frombuffer(raw, np.uint8)[: int(np.prod(shape)) * row.bytes].copy()
    if row.short == "bool":
        flat &= 1
    return flat.view(row.numpy).reshape(shape)


@given(_arrays())
def test_constants_keep_every_bit_that_has_a_meaning(array: np.ndarray) -> None:
    value = Constant("c", BY_NUMPY[array.dtype].short, array.shape, array=array)
    node = Node("Identity", [value], [Value("y")])
    module = Module(ModelInfo("m", "graph"), Graph("g", [], node.outputs, [node]))
    (again,) = parse_module(print_module(module)).graph.leaves()
    assert isinstance(again, Constant)
    assert again.array is not None
    assert again.array.dtype == array.dtype
    np.testing.assert_array_equal(again.array, array)


_NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1
)


@given(_NAMES, _NAMES)
def test_any_name_can_be_written(first: str, second: str) -> None:
    source = Join("stack", 0, (Leaf(first, second), Step("reshape", (2, 2), Leaf(second, first))))
    weight = Weight("w" + first, "f32", (2, 2, 2), source=source)
    node = Node("Identity", [weight], [Value("y" + second)], scope=first)
    module = Module(ModelInfo("m", "graph"), Graph(second, [Input("x" + first)], node.outputs, [node]))
    text = print_module(module)
    assert print_module(parse_module(text)) == text


@given(
    st.builds(
        ModelInfo,
        name=st.text(max_size=9),
        task=st.sampled_from(["graph", "text-generation"]),
        pad_token_id=st.none() | st.integers(0, 3),
        bos_token_id=st.none() | st.integers(0, 3),
        vocab_size=st.none() | st.integers(0, 9),
        eos_token_ids=st.lists(st.integers(0, 3)).map(tuple),
        labels=st.none() | st.lists(st.text(), min_size=1).map(tuple),
        uniform_positions=st.booleans(),
        dims=st.dictionaries(st.text(), st.integers(1, 9)),
        random=st.none() | st.just({"config": {"model_type": "llama", "layers": [1, 2]}, "seed": 0}),
    )
)
def test_the_header_keeps_every_field(info: ModelInfo) -> None:
    node = Node("Identity", [Input("x")], [Value("y")])
    again = parse_module(print_module(Module(info, Graph("g", [node.inputs[0]], node.outputs, [node]))))  # type: ignore[list-item]
    assert again.info == info


def test_the_header_shows_what_differs_from_the_defaults() -> None:
    node = Node("Identity", [Input("x")], [Value("y")])
    info = ModelInfo("m", "graph", max_batch=2)
    text = print_module(Module(info, Graph("g", [node.inputs[0]], node.outputs, [node])))  # type: ignore[list-item]
    assert text.splitlines()[1] == 'model {"max_batch": 2, "name": "m", "task": "graph"}'


def test_two_values_of_one_name_cannot_be_printed() -> None:
    given_twice = Input("x")
    node = Node("Identity", [given_twice], [Value("x")])
    with pytest.raises(InternalError, match="two values are called"):
        print_module(Module(ModelInfo("m", "graph"), Graph("g", [given_twice], node.outputs, [node])))
