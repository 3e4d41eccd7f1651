"""`quantize: stored`: a graph on the integers of a checkpoint computes what the graph on its floats does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from partc.bundle.streaming import stream_weights
from partc.errors import ModelError
from partc.ir.encodings.blocks import BLOCK_FORMATS
from partc.ir.graph import Module, Weight
from partc.ir.panels import panels_shape
from partc.ir.stored_integers import has_stored_integers
from partc.ir.text import parse_module
from partc.ir.weights import STORED_STEPS, Array, Join, Leaf, Step, materialize
from partc.pipeline.contract import Context
from partc.pipeline.registry import load_pass
from passes.quantize_weights import QuantizeWeights
from passes.shards.slices import slices
from tests.passes.interpreter import run

ROWS, COLUMNS, BLOCK = 24, 1024, 32
GGUF = {
    "Q5_0": False, "Q5_1": True, "Q8_0": False, "Q2_K": True, "Q3_K": False, "Q5_K": True, "Q6_K": False,
    "IQ4_NL": False, "IQ4_XS": False, "TQ1_0": False, "TQ2_0": False, "MXFP4": False, "NVFP4": False,
}  # fmt: skip
"""Formats of blocks of more or fewer than 4 bits, and of codebooks; whether products have offsets."""
SCALES_AT = {"q4_1": (0, 2), "q4_k": (0, 2), "q5_1": (0, 2), "q5_k": (0, 2), "q2_k": (80, 82), "q3_k": (108,),
             "q6_k": (208,), "tq1_0": (52,), "tq2_0": (64,), "mxfp4": (), "nvfp4": ()}  # fmt: skip
"""Where numbers of float16 stand in a block; at its beginning where nothing is said."""
WORDS = '"m"#"words" |> bits(4) |> cast(i16)'
SHIFTED = f"{WORDS} |> add(-8)"
FIELDS = '"m"#"awq" |> bits(4) |> order(0,4,1,5,2,6,3,7) |> cast(i16) |> transpose(1, 0)'
SCALES, ZEROS = '"m"#"scales"', '"m"#"zeros" |> cast(i16)'
WORDS8 = '"m"#"words8" |> bits(8) |> cast(i16)'
WORDS3 = '"m"#"words3" |> bits(3) |> cast(i16)'
ZEROS8 = '"m"#"zeros8" |> cast(i16)'
KEPT = {
    "symmetric": (f"scaled({BLOCK}, {SHIFTED}, {SCALES})", False),
    "another zero": (f"scaled({BLOCK}, {WORDS} |> add(-7), {SCALES})", True),
    "zero points": (f"scaled({BLOCK}, {WORDS}, {SCALES}, {ZEROS})", True),
    "awq": (f"scaled({BLOCK}, {FIELDS}, {SCALES}, {ZEROS})", True),
    "a scale a row": (f'scaled(0, {SHIFTED}, "m"#"row_scales")', False),
    "bytes with a scale a row": ('scaled(0, "m"#"signed" |> cast(i8), "m"#"row_scales")', False),
    "a scale and a zero point a row": (
        f'scaled({COLUMNS}, {WORDS}, "m"#"row_scales", "m"#"row_zeros" |> cast(i16))',
        True,
    ),
    "three bits": (f"scaled({BLOCK}, {WORDS3} |> add(-4), {SCALES})", False),
    "three bits and zero points": (f"scaled({BLOCK}, {WORDS3}, {SCALES}, {ZEROS})", True),
    "eight bits": (f"scaled({BLOCK}, {WORDS8} |> add(-128), {SCALES})", False),
    "eight bits, another zero": (f"scaled({BLOCK}, {WORDS8} |> add(-127), {SCALES})", True),
    "eight bits and zero points": (f"scaled({BLOCK}, {WORDS8}, {SCALES}, {ZEROS8})", True),
    "signed bytes": (f'scaled({BLOCK}, "m"#"signed" |> cast(i8), {SCALES})', False),
    "signed bytes and zero points": (f'scaled({BLOCK}, "m"#"signed" |> cast(i8), {SCALES}, {ZEROS8})', True),
    "floats of four bits": ('scaled(32, "m"#"pairs" |> codes(e2m1), "m"#"powers" |> float8(e8m0))', False),
    "q4_0": ('"m"#"q4_0" |> decode(Q4_0)', False),
    "q4_1": ('"m"#"q4_1" |> decode(Q4_1)', True),
    "q4_k": ('"m"#"q4_k" |> decode(Q4_K)', True),
    **{name.lower(): (f'"m"#"{name.lower()}" |> decode({name})', minima) for name, minima in GGUF.items()},
    "in half precision and back": (f"scaled({BLOCK}, {SHIFTED}, {SCALES}) |> cast(f16) |> cast(f32)", False),
}
"""Source of a matrix, and whether its products have offsets."""
_ROWS = [(1, 2, 5, 23)]
EIGHT = [name for name in KEPT if name.startswith(("three", "eight", "signed", "floats", "bytes", "a scale"))]
FLOATS = {
    "permuted inputs": f'scaled(1, {SHIFTED}, take(1, {SCALES}, "m"#"index"))',
    "blocks that a row does not fill": f'scaled(48, {SHIFTED}, "m"#"row_scales")',
    "floats of eight bits": f'scaled({BLOCK}, "m"#"signed" |> float8(e4m3), {SCALES})',
}


class Stored:
    """Tensors as checkpoints of others have them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        blocks = COLUMNS // BLOCK
        of_blocks: dict[str, Array] = {}
        for form in BLOCK_FORMATS.values():
            name, count = form.name.lower(), COLUMNS // form.weights
            each = rng.integers(0, 256, (ROWS, count, form.bytes), dtype=np.uint8)
            for place in SCALES_AT.get(name, (0,)):
                scale = (rng.random((ROWS, count, 1)) * (0.002 if "_k" in name else 0.1)).astype("<f2")
                each[..., place : place + 2] = scale.view(np.uint8)
            if name == "mxfp4":
                each[..., 0] = rng.integers(110, 130, each.shape[:-1])
            of_blocks[name] = each.reshape(ROWS, -1)
        self.tensors: Mapping[str, Array] = {
            "words": rng.integers(-(2**31), 2**31, (ROWS, COLUMNS // 8)).astype(np.int32),
            "words8": rng.integers(-(2**31), 2**31, (ROWS, COLUMNS // 4)).astype(np.int32),
            "words3": rng.integers(-(2**31), 2**31, (ROWS, COLUMNS * 3 // 32)).astype(np.int32),
            "signed": rng.integers(-128, 128, (ROWS, COLUMNS)).astype(np.int8),
            "zeros8": rng.integers(0, 100, (ROWS, blocks)).astype(np.uint8),
            "pairs": rng.integers(0, 256, (ROWS, COLUMNS // 2)).astype(np.uint8),
            "powers": rng.integers(110, 130, (ROWS, blocks)).astype(np.uint8),
            "awq": rng.integers(-(2**31), 2**31, (COLUMNS, ROWS // 8)).astype(np.int32),
            "scales": (rng.random((ROWS, blocks)) * 0.1).astype(np.float16),
            "row_scales": (rng.random((ROWS, 1)) * 0.1).astype(np.float16),
            "row_zeros": rng.integers(0, 16, (ROWS, 1)).astype(np.uint8),
            "wide_scales": np.full((ROWS, blocks), 1e6, np.float32),
            "zeros": rng.integers(0, 16, (ROWS, blocks)).astype(np.uint8),
            "index": rng.integers(0, blocks, COLUMNS).astype(np.int32),
            **of_blocks,
        }

    def read(self, leaf: Leaf) -> Array:
        return self.tensors[leaf.key]


def _module(source: str, precision: str = "stored", turned: bool = False, rows: int = ROWS) -> Module:
    quantize = f'{{"weights": "{precision}", "head": "{precision}", "embeddings": "{precision}"}}'
    shape = f"[{COLUMNS}, {rows}]" if turned else f"[{rows}, {COLUMNS}]"
    view = " |> transpose(1, 0)" if turned else ""
    product = "MatMul(%x, %w)" if turned else "Gemm(%x, %w) {transB = 1}"
    return parse_module(
        f'partc-ir 1\nmodel {{"name": "m", "task": "graph", "dims": {{"rows": 4}}, "quantize": {quantize}}}\n'
        f"graph g opset 20 {{\n  input %x: f32[rows, {COLUMNS}]\n"
        f"  weight %w = f32{shape} from {source}{view}\n  %y: f32[rows, {rows}] = {product}\n  output %y\n}}\n"
    )


def _quantised(module: Module) -> Module:
    assert QuantizeWeights().apply(module, Context())
    load_pass("infer-sizes").apply(module, Context())
    return module


def _outputs(module: Module) -> Any:
    x = np.random.default_rng(2).normal(size=(4, COLUMNS)).astype(np.float32)
    return run(module.graph, {"x": x}, Stored())[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_integers_that_are_kept_are_the_same_matrix(name: str, turned: bool) -> None:
    source, has_offsets = KEPT[name]
    plain = _module(source, turned=turned)
    assert has_stored_integers(plain.graph)
    kept = _quantised(_module(source, turned=turned))
    (node,) = (node for node in kept.graph.nodes if node.op == "partc.QuantizedMatMul")
    assert len(node.inputs) == 3 + has_offsets
    exact = _outputs(plain)
    # Half precision rounds the floats, and formats the scales of K-quants and IQ4_XS: by 1 in 2,048.
    is_rounded = name.endswith("_k") or name in ("iq4_xs", "in half precision and back")
    tolerance = 2e-3 if is_rounded else 2e-6
    np.testing.assert_allclose(_outputs(kept), exact, rtol=1e-4, atol=tolerance * float(np.abs(exact).max()))


@pytest.mark.parametrize("name", FLOATS)
def test_what_no_format_holds_stays_floats(name: str) -> None:
    module = _module(FLOATS[name])
    assert not has_stored_integers(module.graph)
    with pytest.raises(ModelError, match="keeps integers, and no matrix"):
        QuantizeWeights().apply(module, Context())


def test_int4_keeps_what_is_stored_and_int8_rounds_anew() -> None:
    source, _ = KEPT["symmetric"]
    exact = _outputs(_module(source))
    assert np.allclose(_outputs(_quantised(_module(source, "int4"))), exact, rtol=1e-4, atol=1e-3)
    eight = _quantised(_module(source, "int8"))
    (node,) = (node for node in eight.graph.nodes if node.op == "partc.QuantizedMatMul")
    assert node.attributes["bits"] == 8


def test_a_scale_that_float16_lacks_is_refused_in_panels_too() -> None:
    """float32 scales of a checkpoint may be none of float16, on `ort` as in the stream of `tvm`."""
    scales = '"m"#"wide_scales"'
    kept = _quantised(_module(f"scaled({BLOCK}, {SHIFTED}, {scales})"))
    (node,) = (node for node in kept.graph.nodes if node.op == "partc.QuantizedMatMul")
    data, factors = (value for value in node.inputs[1:3] if isinstance(value, Weight))
    assert data.source is not None
    assert factors.source is not None
    panels = Weight(
        "p",
        "i32",
        panels_shape(ROWS, COLUMNS, 4, BLOCK),
        source=Join("panels", 4, (data.source, factors.source)),
    )
    for weight in (factors, panels):
        with pytest.raises(ModelError, match="cannot be quantised"):
            list(stream_weights([weight], Stored().read, kept.info))


def test_what_is_not_stored_gets_the_other_precision() -> None:
    module = _module(FLOATS["blocks that a row does not fill"])
    assert module.info.quantize is not None
    module.info = replace(module.info, quantize=replace(module.info.quantize, otherwise="int8"))
    (node,) = (node for node in _quantised(module).graph.nodes if node.op == "partc.QuantizedMatMul")
    assert node.attributes["bits"] == 8


@pytest.mark.parametrize(
    "name",
    ["symmetric", "zero points", "awq", "q4_0", "q4_1", "q4_k", *(name.lower() for name in GGUF), *EIGHT],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_shares_of_devices_are_parts_of_the_same_integers(name: str, axis: int) -> None:
    kept = _quantised(_module(KEPT[name][0]))
    (node,) = (node for node in kept.graph.nodes if node.op == "partc.QuantizedMatMul")
    for weight in node.inputs[1:]:
        assert isinstance(weight, Weight)
        assert weight.source is not None
        source = weight.source
        whole = materialize(source, Stored().read)
        half = len(whole[0]) // 2  # whole blocks of GGUF
        for indices in (
            _ROWS if axis == 0 else (range(half), range(half, 2 * half), range(2 * half), _apart(half))
        ):
            part = materialize(slices(source, axis, indices), Stored().read)
            assert np.array_equal(part, np.take(whole, indices, axis))
            if isinstance(source, Step) and source.op in STORED_STEPS:
                assert isinstance(found := slices(source, axis, indices), Step)
                assert found.op == source.op, "targets know data and scales by their last step"


def _apart(half: int) -> list[int]:
    """Some of the first half of the blocks and some of the second, which are no neighbours."""
    quarter = max(half // 2, 1)
    return [*range(quarter), *range(2 * half - quarter, 2 * half)]


def test_joined_matrices_can_be_parted() -> None:
    """Blocks with minima, too, whose offsets are read of what is joined."""
    parts = [f'"m"#"{name}" |> decode(Q5_K)' for name in ("q5_k", "q5_k")]
    kept = _quantised(_module(f"concat(0, {', '.join(parts)})", rows=2 * ROWS))
    (node,) = (node for node in kept.graph.nodes if node.op == "partc.QuantizedMatMul")
    for weight in node.inputs[1:]:
        assert isinstance(weight, Weight) and weight.source is not None
        whole = materialize(weight.source, Stored().read)
        part = materialize(slices(weight.source, 0, (1, 30)), Stored().read)
        assert np.array_equal(part, whole[[1, 30]])


def test_gate_and_up_row_by_row_in_turns() -> None:
    turns = f'stack(1, "m"#"mxfp4" |> decode(MXFP4), "m"#"mxfp4" |> decode(MXFP4)) |> reshape({2 * ROWS},{COLUMNS})'
    kept = _quantised(_module(turns, rows=2 * ROWS))
    plain = _module(turns, rows=2 * ROWS)
    np.testing.assert_allclose(_outputs(kept), _outputs(plain), rtol=1e-4, atol=1e-4)
