"""The kernels of the tvm target against numpy, at sizes that are not multiples of anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from partc.format.layouts import PANEL
from partc.ir.operators import QUANTIZE_ROWS
from partc.ir.operators.attention import Visibility
from partc.ir.types import BY_LONG
from tests.targets import numpy_attention
from tests.targets.numpy_attention import Array

pytestmark = [pytest.mark.tvm, pytest.mark.in_turns(2)]
tvm = pytest.importorskip("tvm")

from targets.tvm.kernels.activate import activate  # noqa: E402
from targets.tvm.kernels.attention import attend  # noqa: E402
from targets.tvm.kernels.attention_sizes import Sizes  # noqa: E402
from targets.tvm.kernels.cache_rows import round_rows  # noqa: E402
from targets.tvm.kernels.float_tiles import AVX512, NARROW, tile_of  # noqa: E402
from targets.tvm.kernels.matmul import (  # noqa: E402
    product,
    product_added,
    product_gated,
    products_of_2,
    products_of_3,
)
from targets.tvm.kernels.normalise import layer_norm, rms_norm  # noqa: E402
from targets.tvm.kernels.rotary import rotate  # noqa: E402
from targets.tvm.kernels.update_state import make_panels, write_panels, write_rows  # noqa: E402
from targets.tvm.kernels.vector import (  # noqa: E402
    ACTIVATIONS,
    erf,
    exp,
    gelu,
    gelu_tanh,
    sigmoid,
    swish,
    tanh,
)
from targets.tvm.machine import machine_of  # noqa: E402

GARBAGE = 1e6
"""What no result may contain, since no kernel may read it or leave it standing."""


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def built(function: Any) -> Callable[..., list[Array]]:
    """A kernel as a function of its arrays, compiled once; it returns what they are behind it."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target="llvm")["main"]

    def run(*arrays: Array) -> list[Array]:
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        compiled(*tensors)
        return [tensor.numpy() for tensor in tensors]

    return run


def call(function: Any, *arrays: Array) -> list[Array]:
    """What the arrays are after the kernel ran over them."""
    return built(function)(*arrays)


def blank(*shape: int) -> Array:
    return np.full(shape, GARBAGE, np.float32)


def panels(weight: Array) -> Array:
    """[K, N] → [ceil(N / PANEL), K, PANEL]; what pads it is garbage."""
    depth, columns = weight.shape
    count = -(-columns // PANEL)
    padded = np.full((depth, count * PANEL), min(GARBAGE, 60000), weight.dtype)
    padded[:, :columns] = weight
    return np.ascontiguousarray(padded.reshape(depth, count, PANEL).transpose(1, 0, 2))


PRODUCTS = [(1, 96, 64), (1, 33, 40), (2, 24, 80), (3, 17, 5), (4, 50, 48), (7, 20, 33), (14, 31, 100)]
"""M, K, N: one row, few rows, and tiles with a rest of rows, with a rest of columns."""


@pytest.mark.parametrize("size", PRODUCTS)
def test_product(size: tuple[int, int, int]) -> None:
    M, K, N = size
    x, w = numbers(M, K), numbers(K, N)
    np.testing.assert_allclose(call(product(M, K, N), x, panels(w), blank(M, N))[-1], x @ w, atol=1e-4)


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("size", [(7, 20, 33), (9, 31, 5), (23, 31, 100)])
def test_tiles_of_avx512_give_the_bits_of_narrow_ones(size: tuple[int, int, int]) -> None:
    M, K, N = size
    x, w, gate = numbers(M, K), numbers(K, N), numbers(K, N, seed=1)
    narrow, wide = (
        [
            call(product(M, K, N, "float32", tile), x, panels(w), blank(M, N))[-1],
            call(product_gated(M, K, N, "swish", "float32", tile), x, panels(gate), panels(w), blank(M, N))[
                -1
            ],
        ]
        for tile in (NARROW, AVX512)
    )
    np.testing.assert_array_equal(wide, narrow)
    np.testing.assert_allclose(wide[0], x @ w, atol=1e-4)


def test_only_avx512_has_registers_for_wide_tiles() -> None:
    found = {
        feature: tile_of(machine_of("x86_64", "", (feature,), "cpu", ""))
        for feature in ("avx2", "avxvnni", "avx512", "vnni")
    }
    assert found == {"avx2": NARROW, "avxvnni": NARROW, "avx512": AVX512, "vnni": AVX512}


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [(1, 33, 40), (7, 20, 33)])
def test_product_with_a_weight_in_half_precision(size: tuple[int, int, int], stored: str) -> None:
    """Numbers of the weight are rounded; nothing else is."""
    M, K, N = size
    x, w = numbers(M, K), numbers(K, N).astype(BY_LONG[stored].numpy)
    found = call(product(M, K, N, stored), x, panels(w), blank(M, N))[-1]
    np.testing.assert_allclose(found, x @ w.astype(np.float32), atol=1e-4)


@pytest.mark.parametrize("height", ["bias", "residual"])
@pytest.mark.parametrize("size", [(1, 33, 40), (7, 20, 33)])
def test_product_with_a_sum(size: tuple[int, int, int], height: str) -> None:
    M, K, N = size
    A = 1 if height == "bias" else M
    x, w, added = numbers(M, K), numbers(K, N), numbers(A, N, seed=1)
    found = call(product_added(M, K, N, A), x, panels(w), added, blank(M, N))[-1]
    np.testing.assert_allclose(found, x @ w + added, atol=1e-4)


@pytest.mark.parametrize("size", [(1, 33, 40), (7, 20, 33), (3, 64, 80)])
def test_gated_product(size: tuple[int, int, int]) -> None:
    M, K, N = size
    x, gate, up = numbers(M, K), numbers(K, N), numbers(K, N, seed=1)
    found = call(product_gated(M, K, N, "swish"), x, panels(gate), panels(up), blank(M, N))[-1]
    gates = (x @ gate).astype(np.float64)
    np.testing.assert_allclose(found, gates / (1 + np.exp(-gates)) * (x @ up), rtol=1e-4, atol=1e-3)


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("widths", [(64, 16), (48, 7, 33)])
def test_products_of_one_operand(rows: int, widths: tuple[int, ...]) -> None:
    K = 21
    x, weights = numbers(rows, K), [numbers(K, width) for width in widths]
    make: Callable[..., Any] = products_of_2 if len(widths) == 2 else products_of_3
    results = [blank(rows, width) for width in widths]
    found = call(make(rows, K, *widths), x, *map(panels, weights), *results)[-len(widths) :]
    for got, weight in zip(found, weights, strict=True):
        np.testing.assert_allclose(got, x @ weight, atol=1e-4)


PLAIN = Sizes(2, 6, 1, 24, 2, 37, 8, 0.2, Visibility(True))
WINDOW, CHUNK, ALL = Visibility(True, window=5), Visibility(True, chunk=16), Visibility(False)
ENCODER = replace(PLAIN, heads=4, kv_heads=4, rows=37, seen=ALL)
ATTENTIONS = {
    "one query": PLAIN,
    "one query, each head its own keys": replace(PLAIN, kv_heads=6),
    "one query, more heads than registers": replace(PLAIN, heads=16),
    "many queries": replace(PLAIN, rows=7),
    "many queries of some heads of a group": replace(PLAIN, heads=16, rows=17),
    "more queries than a block": replace(PLAIN, rows=101, keys=130, d=16, e=16),
    "sizes of nothing": replace(PLAIN, d=5, e=6),
    "values wider than a vector": replace(PLAIN, e=40, rows=3),
    "values wider than many, one query": replace(PLAIN, d=18, e=88, kv_heads=6),
    "heads of one number, five that share keys, a window of one": replace(
        PLAIN, heads=10, d=1, e=1, rows=2, keys=17, seen=Visibility(True, window=1)
    ),
    "large heads in 8 bits, a panel of one key": replace(
        PLAIN, d=256, e=33, rows=2, keys=17, quantized=True, stored="int8"
    ),
    "window": replace(PLAIN, rows=7, seen=WINDOW),
    "window, one query": replace(PLAIN, seen=WINDOW),
    "chunk": replace(PLAIN, rows=20, seen=CHUNK),
    "window and chunk": replace(PLAIN, rows=20, seen=replace(CHUNK, window=5)),
    "softcap": replace(PLAIN, rows=7, softcap=1.5),
    "softcap, one query": replace(PLAIN, softcap=1.5),
    "rows first": replace(PLAIN, rows=9, rows_first=True),
    "rows first, one query": replace(PLAIN, rows_first=True),
    "everything is seen": replace(PLAIN, rows=5, seen=ALL),
    "sinks": replace(PLAIN, rows=7, sinks=True, seen=WINDOW),
    "sinks, one query": replace(PLAIN, sinks=True),
    "keys that are hidden": replace(ENCODER, mask=(2, 1, 1, 37), mask_dtype="bool"),
    "keys that are hidden, many queries": replace(ENCODER, rows=101, mask=(1, 4, 101, 37), mask_dtype="bool"),
    "a number for every key": replace(ENCODER, mask=(1, 4, 37, 37), mask_dtype="float32"),
    "a number for every head": replace(PLAIN, rows=7, mask=(1, 6, 1, 37), mask_dtype="float32"),
    "a number for every head, one query": replace(PLAIN, mask=(2, 6, 1, 37), mask_dtype="float32"),
    "8 bits": replace(PLAIN, rows=7, quantized=True, stored="int8"),
    "8 bits, one query": replace(PLAIN, quantized=True, stored="int8"),
    "8 bits, softcap, sinks and a mask": replace(
        PLAIN,
        rows=7,
        quantized=True,
        stored="int8",
        softcap=1.5,
        sinks=True,
        mask=(1, 6, 1, 37),
        mask_dtype="float32",
    ),
    "tiles of two panels": replace(PLAIN, rows=17, tile=AVX512),
    "tiles of two panels, one query": replace(PLAIN, tile=AVX512),
    "tiles of two panels, one panel": replace(PLAIN, rows=9, keys=16, tile=AVX512),
    "tiles of two panels, 8 bits, a mask": replace(
        PLAIN,
        rows=7,
        quantized=True,
        stored="int8",
        tile=AVX512,
        mask=(1, 6, 1, 37),
        mask_dtype="float32",
    ),
    "tiles of two panels, window": replace(PLAIN, rows=17, seen=WINDOW, tile=AVX512),
    "one number for all": replace(PLAIN, rows=3, mask=(1, 1, 1, 1), mask_dtype="float32", softcap=2.0),
}


@dataclass
class Given:
    """Operands of an attention."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    sinks: Array | None

    def call(self, z: Sizes, position: Array, kernel: Callable[..., list[Array]]) -> Array:
        """The result of the kernel, which is that of these sizes."""
        others = [position if array is None else array for array in (self.mask, self.sinks)]
        caches, scales = [in_panels(self.k), self.v], [position, position]
        if z.quantized:
            (k, key_scales), (v, value_scales) = rounded(self.k), rounded(self.v)
            caches, scales = [in_panels(k), v], [in_panels(key_scales), in_panels(value_scales)]
        return kernel(self.q, *caches, *scales, position, *others, blank(*z.result))[-1]

    def expected(self, z: Sizes, position: Array) -> Array:
        """The result of the reference, of what the caches stand for."""
        k, v = self.k, self.v
        if z.quantized:
            k, v = (data * scales for data, scales in (rounded(k), rounded(v)))
        out = numpy_attention.attention(
            self.q, k, v, position, scale=z.scale, softcap=z.softcap, mask=self.mask,
            sinks=self.sinks, causal=z.seen.causal, window=z.seen.window, chunk=z.seen.chunk,
        )  # fmt: skip
        return out.transpose(0, 2, 1, 3) if z.rows_first else out


def given(z: Sizes) -> Given:
    mask = numbers(*z.mask, seed=2) if z.mask else None
    if mask is not None and z.mask_dtype == "bool":
        mask = mask > -0.5
        mask[..., 0] = True
    return Given(
        numbers(z.batch, z.heads, z.rows, z.d),
        numbers(z.batch, z.kv_heads, z.keys, z.d),
        numbers(z.batch, z.kv_heads, z.keys, z.e, seed=1),
        mask,
        numbers(z.heads, seed=3) if z.sinks else None,
    )


def rounded(x: Array) -> tuple[Array, Array]:
    """Whole numbers of 8 bits, and a scale for every row."""
    data, scales = QUANTIZE_ROWS.reference([x], {})
    return data, scales


def in_panels(keys: Array) -> Array:
    """[batch, heads, keys, d] → [batch, heads, panels, d, PANEL]; what fills up the last one is garbage."""
    batch, heads, count, d = keys.shape
    panels = -(-count // PANEL)
    padded = np.full((batch, heads, panels * PANEL, d), 99 if keys.dtype == np.int8 else GARBAGE, keys.dtype)
    padded[:, :, :count] = keys
    return np.ascontiguousarray(padded.reshape(batch, heads, panels, PANEL, d).swapaxes(3, 4))


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    z = ATTENTIONS[name]
    kernel = built(attend(z))
    for place in (0, 11, z.keys - z.rows) if z.seen.hides else (0,):
        own, position = given(z), np.array([place, place // 2])
        if z.seen.hides:  # behind what a sequence has come to, a cache may hold anything
            for b, end in enumerate(position + z.rows):
                own.k[b, :, end:], own.v[b, :, end:] = GARBAGE, GARBAGE
        np.testing.assert_allclose(own.call(z, position, kernel), own.expected(z, position), atol=2e-5)


def test_a_query_from_which_the_mask_hides_everything_stays_finite() -> None:
    z = replace(ENCODER, mask=(2, 1, 1, 37), mask_dtype="bool")
    own, position = given(z), np.zeros(2, np.int64)
    assert own.mask is not None
    own.mask[1] = False
    found = own.call(z, position, built(attend(z)))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:1], own.expected(z, position)[:1], atol=2e-5)


def test_attention_of_padding_behind_the_end_of_the_cache() -> None:
    z = replace(PLAIN, rows=8, seen=Visibility(True, window=4))
    own, position = given(z), np.array([z.keys - 3, z.keys])
    found = own.call(z, position, built(attend(z)))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:1, :, :3], own.expected(z, position)[:1, :, :3], atol=2e-5)


@pytest.mark.parametrize("rows", [1, 5])
def test_norms(rows: int) -> None:
    x, weight, bias = numbers(rows, 48) + 3, numbers(48, seed=1), numbers(48, seed=2)
    found = call(rms_norm(rows, 48, 1e-5), x, weight, blank(rows, 48))[-1]
    np.testing.assert_allclose(found, x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight, atol=1e-5)
    found = call(layer_norm(rows, 48, 1e-5), x, weight, bias, blank(rows, 48))[-1]
    apart = x - x.mean(-1, keepdims=True)
    expected = apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize(("d", "turned", "tables"), [(32, 32, 2), (24, 10, 1)])
def test_rotary_embedding(rows_first: bool, d: int, turned: int, tables: int) -> None:
    B, H, S, half = 2, 3, 5, turned // 2
    x, angles = numbers(B, H, S, d), numbers(tables, S, half, seed=1)
    given = np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if rows_first else x
    kernel = rotate(B, H, S, d, tables, half, rows_first)
    found = call(kernel, given, np.cos(angles), np.sin(angles), blank(B, H, S, d))[-1]
    left, right, rest = np.split(x, [half, turned], axis=-1)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    expected = np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("rows_first", [False, True])
def test_update_state_writes_its_rows_and_nothing_behind_the_end(rows_first: bool) -> None:
    state, new = numbers(2, 3, 10, 12), numbers(2, 3, 4, 12, seed=1)
    given = np.ascontiguousarray(new.transpose(0, 2, 1, 3)) if rows_first else new
    kernel = write_rows(2, 3, 10, 12, 4, rows_first, "float32", "float32")
    found = call(kernel, state.copy(), given, np.array([2, 8]))[0]
    state[0, :, 2:6], state[1, :, 8:10] = new[0], new[1, :, :2]
    np.testing.assert_array_equal(found, state)


@pytest.mark.parametrize("rows_first", [False, True])
def test_keys_are_written_into_their_panels_and_nothing_else_is(rows_first: bool) -> None:
    state, new = numbers(2, 3, 37, 12), numbers(2, 3, 19, 12, seed=1)
    given = np.ascontiguousarray(new.transpose(0, 2, 1, 3)) if rows_first else new
    held = in_panels(state)
    found = call(
        write_panels(2, 3, 3, 12, 19, rows_first, "float32", "float32"), held.copy(), given, np.array([2, 40])
    )[0]
    state[0, :, 2:21] = new[0]
    right = in_panels(state)
    right[1, :, 2, :, 8:] = new[1, :, :8].swapaxes(1, 2)  # the end of the last panel is nobody's
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("rows_first", [False, True])
def test_panels_of_the_keys_of_a_step(rows_first: bool) -> None:
    keys = numbers(2, 3, 21, 12)
    given = np.ascontiguousarray(keys.transpose(0, 2, 1, 3)) if rows_first else keys
    right = in_panels(keys)
    right[right == GARBAGE] = 0
    found = call(make_panels(2, 3, 12, 21, rows_first), given, blank(*right.shape))[-1]
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("d", [12, 32])
def test_rows_in_8_bits(rows_first: bool, d: int) -> None:
    x = numbers(2, 3, 5, d) * np.geomspace(1e-3, 1e3, 5, dtype=np.float32)[:, None]
    x[1, 2, 3] = 0
    given = np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if rows_first else x
    results = np.full(x.shape, 99, np.int8), blank(2, 3, 5, 1)
    data, scales = call(round_rows(2, 3, 5, d, rows_first), given, *results)[-2:]
    right, right_scales = rounded(x)
    np.testing.assert_allclose(scales, right_scales, rtol=1e-6)
    assert np.abs(data.astype(int) - right).max() <= 1
    assert np.mean(data != right) < 0.01, "a half may be rounded to the other side"
    assert np.abs(data).max() == 127
    np.testing.assert_allclose(data * scales, x, atol=0.51 * right_scales.max())


ERF = np.vectorize(math.erf, otypes=[float])
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array], float, float]] = {
    "exp": (exp, np.exp, 2.4e-7, 0),
    "sigmoid": (sigmoid, lambda x: 1 / (1 + np.exp(-x)), 5e-7, 0),
    "tanh": (tanh, np.tanh, 5e-7, 0),
    "swish": (swish, lambda x: x / (1 + np.exp(-x)), 5e-7, 0),
    "erf": (erf, ERF, 0, 4e-7),
    "gelu": (gelu, lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))), 5e-7, 1.5e-6),
    "gelu_tanh": (
        gelu_tanh,
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        *(5e-7, 1.5e-6),
    ),
}
"""Name → the function, what it approximates, and how closely, relatively and absolutely."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_functions(name: str) -> None:
    function, reference, relative, absolute = FUNCTIONS[name]
    x = np.concatenate([np.linspace(-12, 12, 4000), np.geomspace(1e-30, 1, 80), [0.0, -0.0] * 8]).astype(
        np.float32
    )
    found = call(over(function, len(x)), x, blank(len(x)))[-1]
    right = reference(x.astype(np.float64))
    np.testing.assert_allclose(found, right, rtol=relative, atol=absolute)


@pytest.mark.parametrize("count", [16, 37, 100_003])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_any_count(name: str, count: int) -> None:
    x = 4 * numbers(count)
    found = call(activate(count, name), x, blank(count))[-1]
    np.testing.assert_allclose(found, FUNCTIONS[name][1](x.astype(np.float64)), rtol=1e-6, atol=1.5e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_functions_stay_finite(name: str) -> None:
    x = np.repeat(np.array([-1e4, -89.0, 89.0, 1e4], np.float32), 4)
    found = call(over(FUNCTIONS[name][0], len(x)), x, blank(len(x)))[-1]
    assert np.isfinite(found).all()


def over(function: Callable[[Any], Any], count: int) -> Any:
    """A kernel that applies a function to 16 numbers at a time."""
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def kernel(x: T.Buffer((count,), "float32"), y: T.Buffer((count,), "float32")):  # type: ignore
        for part in range(count // 16):
            for lane in T.vectorized(16):
                y[part * 16 + lane] = function(x[part * 16 + lane])

    return kernel
