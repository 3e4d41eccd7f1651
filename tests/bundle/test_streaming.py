"""Weights a few rows at a time are the weights as a whole; what is read together is read once; memory stays small."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.bundle import streaming
from partc.bundle.streaming import stream_weights, views_first
from partc.errors import ModelError
from partc.ir.graph import ModelInfo, Weight
from partc.ir.panels import panels_shape
from partc.ir.types import BY_NUMPY
from partc.ir.weight_formats import format_of
from partc.ir.weights import ROW_WISE, STEPS, VIEWS, Argument, Join, Leaf, Step, WeightExpr, materialize

INFO = ModelInfo("m", "text-generation")
Arrays = dict[str, npt.NDArray[Any]]


def checkpoint() -> Arrays:
    rng = np.random.default_rng(5)
    matrices = {f"m{i}": rng.standard_normal((6, 32)).astype(ml_dtypes.bfloat16) for i in range(3)}
    return {
        **matrices,
        "vector": rng.standard_normal(32).astype(np.float32),
        "scalar": np.array(3, np.float32),
    }


CHECKPOINT = checkpoint()


def read(leaf: Leaf) -> npt.NDArray[Any]:
    return CHECKPOINT[leaf.key]


def weight(name: str, expr: WeightExpr) -> Weight:
    values = materialize(expr, read)
    return Weight(name, BY_NUMPY[values.dtype].short, values.shape, source=expr)


def streamed(weights: list[Weight]) -> Arrays:
    """The pieces of each weight, put together."""
    pieces: dict[str, list[npt.NDArray[Any]]] = {}
    for name, piece in stream_weights(weights, read, INFO):
        pieces.setdefault(name, []).append(piece)
    return {name: found[0] if found[0].ndim == 0 else np.concatenate(found) for name, found in pieces.items()}


def exprs() -> st.SearchStrategy[WeightExpr]:
    """Matrices [6n, 32] or [32, 6n] by everything that a reference may carry but what changes the rank."""
    leaf: st.SearchStrategy[WeightExpr] = st.sampled_from([Leaf("f", f"m{i}") for i in range(3)])
    steps: st.SearchStrategy[tuple[str, tuple[Argument, ...]]] = st.sampled_from(
        [("cast", ("f32",)), ("cast", ("f16",)), ("add", (1.5,)), ("mul", (0.5,)), ("transpose", (1, 0))]
    )

    def more(inner: st.SearchStrategy[WeightExpr]) -> st.SearchStrategy[WeightExpr]:
        joined = st.tuples(st.sampled_from([0, 1]), inner, st.integers(1, 3)).map(
            lambda drawn: Join("concat", drawn[0], (drawn[1],) * drawn[2])
        )
        stacked = inner.map(lambda e: Step("reshape", (-1, 2), Join("stack", 0, (e, e))))
        sliced = inner.map(lambda e: Step("slice", (0, 1, 5), e))
        padded = inner.map(lambda e: Step("pad", (1, 3), e))
        plain = st.tuples(steps, inner).map(lambda drawn: Step(drawn[0][0], drawn[0][1], drawn[1]))
        return st.one_of(plain, joined, stacked, sliced, padded)

    return st.recursive(leaf, more, max_leaves=6)


@given(exprs(), st.sampled_from([1, 100, 1 << 22]))
def test_pieces_are_the_whole(expr: WeightExpr, piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_PIECE_BYTES", piece_bytes)
        expected = materialize(expr, read)
        found = streamed([weight("w", expr)])["w"]
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()  # bit for bit: also the sign of a zero


@given(exprs(), st.sampled_from([(4, 16), (4, 32), (8, 0)]), st.booleans())
def test_quantised_pieces_are_the_whole(expr: WeightExpr, how: tuple[int, int], turned: bool) -> None:
    data: WeightExpr = Step("quantize", how, expr)
    data = Step("transpose", (1, 0), data) if turned and how[0] == 8 else data
    pair = {"data": data, "scales": Step("scales", how, expr)}
    if how[1] != 16:
        pair["panels"] = Step("panels", how, expr)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_PIECE_BYTES", 100)
        found = streamed([weight(name, own) for name, own in pair.items()])
    for name, own in pair.items():
        np.testing.assert_array_equal(found[name], materialize(own, read))


@pytest.mark.parametrize("expr", [Leaf("f", "scalar"), Step("cast", ("f16",), Leaf("f", "scalar"))], ids=str)
def test_a_scalar_is_one_piece(expr: WeightExpr) -> None:
    assert streamed([weight("w", expr)])["w"] == materialize(expr, read)


@pytest.mark.parametrize("step", [None, Step("add", (1.0,), Leaf("f", "scalar"))], ids=str)
def test_scalars_are_stacked(step: WeightExpr | None) -> None:
    """Some models keep one number for a layer or an expert."""
    part = step or Leaf("f", "scalar")
    expr = Step("mul", (2.0,), Join("stack", 0, (part, part, part)))
    np.testing.assert_array_equal(streamed([weight("w", expr)])["w"], materialize(expr, read))


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 0), (8, 32)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e7])
def test_what_is_not_finite_is_not_quantised(bits: int, block: int, value: float) -> None:
    matrix = np.ones((4, 32), np.float32)
    matrix[2, 5] = value
    data, scales = (Step(step, (bits, block), Leaf("f", "m")) for step in ("quantize", "scales"))
    shapes = {data: ("u8" if bits == 4 else "i8", format_of(bits, block).data_shape(4, 32, block)),
              scales: ("f32", format_of(bits, block).scales_shape(4, 32, block))}  # fmt: skip
    wanted = [Weight(expr.op, *of_type, source=expr) for expr, of_type in shapes.items()]
    packed = Join("concat", 0, (scales, scales))  # as of projections that are one product
    wanted.append(
        Weight("packed", "f32", (8, *format_of(bits, block).scales_shape(4, 32, block)[1:]), source=packed)
    )
    both = Step("panels", (bits, block), Leaf("f", "m"))
    wanted.append(Weight("panels", "i32", panels_shape(4, 32, bits, block), source=both))
    for alone in wanted[2:]:
        with pytest.raises(ModelError, match="NaN"):
            list(stream_weights([alone], lambda _: matrix, INFO))
    with pytest.raises(ModelError, match="NaN"):
        list(stream_weights(wanted, lambda _: matrix, INFO))
    matrix[2, 5] = 5e5  # its scale is not much less than float16's largest number
    assert len(list(stream_weights(wanted, lambda _: matrix, INFO))) == len(wanted)


@pytest.mark.parametrize(("task", "what"), [("text-generation", "config.json"), ("graph", "the graph")])
def test_a_tensor_of_another_size_is_refused_with_what_it_should_fit(task: str, what: str) -> None:
    """An ONNX file has no config.json."""
    wanted = Weight("w", "bf16", (6, 33), source=Leaf("f", "m0"))
    with pytest.raises(ModelError, match=r"expected bf16\[6, 33\], found") as caught:
        list(stream_weights([wanted], read, ModelInfo("m", task)))
    assert caught.value.hint == f"does {what} belong to these files?"


def test_an_empty_tensor_is_checked_like_others(tmp_path: Path) -> None:
    expr = Step("slice", (0, 2, 2), Leaf("f", "m0"))
    assert streamed([weight("w", expr)])["w"].shape == (0, 32)


@given(exprs())
def test_views_first_changes_no_value(expr: WeightExpr) -> None:
    expected, found = materialize(expr, read), materialize(views_first(expr), read)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


def test_a_transform_that_mixes_rows_is_not_done_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of this file: were transpose in the table of what works row by row, the result would be another."""
    expr = Step(
        "transpose", (1, 0), Step("slice", (1, 0, 6), Leaf("f", "m0"))
    )  # square: shapes would not tell
    monkeypatch.setattr(streaming, "_PIECE_BYTES", 1)
    wanted = weight("w", expr)
    np.testing.assert_array_equal(streamed([wanted])["w"], materialize(expr, read))
    monkeypatch.setattr(streaming, "ROW_WISE", ROW_WISE | {"transpose"})
    with pytest.raises(ModelError):
        streamed([wanted])


def test_the_transform_tables_name_transforms() -> None:
    assert STEPS.keys() >= ROW_WISE | VIEWS
    assert not ROW_WISE & VIEWS


def test_experts_of_one_tensor_do_not_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each with data and scales, in pieces as large as if it were a tensor of its own."""
    experts = np.random.default_rng(4).standard_normal((3, 8, 32)).astype(np.float32)
    monkeypatch.setattr(streaming, "_PIECE_BYTES", 4 * 32 * 4)
    wanted, expected = [], []
    for step, index in itertools.product(("quantize", "scales"), range(3)):
        chosen = Step("slice", (0, index, index + 1), Step("cast", ("f32",), Leaf("f", "m")))
        expr = Step(step, (4, 32), Step("reshape", (8, 32), chosen))
        values = materialize(expr, lambda _: experts)
        wanted.append(Weight(f"{step}{index}", BY_NUMPY[values.dtype].short, values.shape, source=expr))
    for index in range(3):
        expected += 2 * [(f"quantize{index}", 4), (f"scales{index}", 4)]
    found = [(name, len(rows)) for name, rows in stream_weights(wanted, lambda _: experts, INFO)]
    assert found == expected


def test_what_comes_from_one_tensor_is_read_and_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    casts: list[int] = []
    cast = STEPS["cast"]

    def counted_cast(array: Any, dtype: str) -> Any:
        casts.append(len(array))
        return cast(array, dtype)

    def counted_read(leaf: Leaf) -> npt.NDArray[Any]:
        reads.append(leaf.key)
        return read(leaf)

    a, b = (Step("cast", ("f32",), Leaf("f", key)) for key in ("m0", "m1"))
    weights = [weight(f"{name}{step}", Step(step, (4, 32), source))
               for step in ("scales", "quantize") for name, source in (("a", a), ("b", b))]  # fmt: skip
    monkeypatch.setitem(STEPS, "cast", counted_cast)
    monkeypatch.setattr(streaming, "_PIECE_BYTES", 128)
    order = [name for name, _ in stream_weights(weights, counted_read, INFO)]
    assert reads == ["m0", "m1"]
    assert casts == [2] * 6
    assert order == ["ascales", "aquantize"] * 3 + ["bscales", "bquantize"] * 3


def test_no_piece_is_larger_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PIECE_BYTES", 256)
    source = Step("transpose", (1, 0), Step("cast", ("f32",), Leaf("f", "m0")))
    pieces = [piece.nbytes for _, piece in stream_weights([weight("w", source)], read, INFO)]
    assert max(pieces) <= 256
    assert sum(pieces) == 6 * 32 * 4


def peak_of(work: Iterator[Any]) -> int:
    """Bytes that Python's and numpy's allocators held at most."""
    import tracemalloc

    tracemalloc.start()
    for _ in work:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("steps", [["quantize"], ["transpose"], ["quantize", "transpose"]], ids=str)
def test_the_peak_is_far_below_one_tensor(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_PIECE_BYTES", 1 << 20)
    path, shape = tmp_path / "big", (4096, 4096)
    np.lib.format.open_memmap(path, "w+", np.float16, shape)[:] = 1
    mapped = np.load(path, mmap_mode="r")
    expr: WeightExpr = Step("cast", ("f32",), Leaf("f", "big"))
    for step in steps:
        expr = Step(step, {"quantize": (8, 0), "transpose": (1, 0)}[step], expr)
    dtype = "i8" if "quantize" in steps else "f32"
    peak = peak_of(stream_weights([Weight("w", dtype, shape, source=expr)], lambda _: mapped, INFO))
    # A transposed result of what works row by row must be there as a whole, once.
    assert peak < (8 << 20) + (4096 * 4096 if steps == ["quantize", "transpose"] else 0)
