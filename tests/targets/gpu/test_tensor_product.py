"""Kernels for tensor cores, whose code for CUDA a processor computes (`block.hpp`), against float64."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.format.dtypes import Array
from partc.ir.panels import panels
from partc.ir.weight_formats import FORMATS as WEIGHTS
from partc.ir.weight_formats import by_format

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

import tvm  # noqa: E402

from targets.tvm.gpu.kernels import product  # noqa: E402
from targets.tvm.gpu.kernels.shapes import Shape  # noqa: E402
from targets.tvm.gpu.launches import split  # noqa: E402
from targets.tvm.layout import PANEL  # noqa: E402
from targets.tvm.machine import machine_of  # noqa: E402

MACHINE = machine_of("x86_64", "", (), "cuda", "sm_80")
FORMATS = ("int4", "int8", "int8_blocks", "float32")
SIZES = (
    (33, 100, 70),
    (17, 37, 33),
    pytest.param(5, 64, 40, marks=pytest.mark.slow),
    pytest.param(70, 96, 16, marks=pytest.mark.slow),
)
"""Rows, depth, columns: parts of tiles, of blocks of the depth and of panels."""
Weight = tuple[Array, Array]
"""As the kernel reads it, and its numbers [N, K] in float64."""


def numbers(*shape: int, seed: int = 0) -> Array:
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return found


def shape(stored: str, M: int, K: int, N: int) -> Shape:
    depth = -(-K // 64) * 64 if stored == "int4" else -(-K // 32) * 32 if stored in WEIGHTS else K
    return Shape(stored, M, K, N, depth, MACHINE.most_threads, block_of(stored), MACHINE.has_tensor_cores)


def block_of(stored: str) -> int:
    return WEIGHTS[stored].block(32) if stored in WEIGHTS else 0


def weight(stored: str, N: int, K: int, seed: int = 1) -> Weight:
    matrix = numbers(N, K, seed=seed)
    if stored == "float32":
        whole = np.pad(matrix, ((0, -N % PANEL), (0, 0)))
        return np.ascontiguousarray(whole.reshape(-1, PANEL, K).transpose(0, 2, 1)), matrix.astype(np.float64)
    bits, block = WEIGHTS[stored].bits, block_of(stored)
    packed = panels(matrix, bits, block)
    read = by_format(bits, block, int4=_of4, int8=_of8, int8_blocks=_of8_blocks)
    return packed, read(packed)[:N, :K]


def _of4(packed: Array) -> Array:
    groups, steps = packed.shape[:2]
    words = packed[..., :128].view(np.uint32).reshape(groups, steps, 4, 2, 4, 16, 1)
    places = np.array([8 * (j % 4) + 4 * (j // 4) for j in range(8)], np.uint32)
    scales = np.ascontiguousarray(packed[..., 128:]).view("<f2").reshape(groups, steps, 4, 2, 1, 16, 1)
    values = ((words >> places & 15).astype(np.float64) - 8) * scales
    rows: Array = values.transpose(0, 2, 5, 1, 3, 4, 6).reshape(groups * 64, -1)
    return rows


def _of8(packed: Array) -> Array:
    values = packed[:, 2:].view("<i1").reshape(len(packed), -1, 16, 4).astype(np.float64)
    scales = np.ascontiguousarray(packed[:, 1]).view("<f4").reshape(len(packed), 16, 1)
    rows: Array = values.transpose(0, 2, 1, 3).reshape(len(packed), 16, -1) * scales
    return rows.reshape(len(packed) * 16, -1)


def _of8_blocks(packed: Array) -> Array:
    groups, blocks = packed.shape[:2]
    values = np.ascontiguousarray(packed[..., :128]).view("<i1").reshape(groups, blocks, 8, 16, 4)
    scales = np.ascontiguousarray(packed[..., 128:]).view("<f2").reshape(groups, blocks, 1, 16, 1)
    rows: Array = (values.astype(np.float64) * scales).transpose(0, 3, 1, 2, 4)
    return rows.reshape(groups * 16, -1)


def computed(kernel: Any, x: Array, weights: list[Array], outputs: list[Array], folder: Path) -> None:
    """Run a kernel's code for CUDA; tensors are in the order of its parameters."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    target = MACHINE.target()
    launches, functions = split({"kernel": kernel.with_attr("global_symbol", "kernel")}, target)
    (launch,) = launches["kernel"]
    source = tvm.get_global_func("target.build.cuda")(functions, target).inspect_source()
    code = source[re.search(rf'extern "C" __global__ .*{launch.function}\(.*{{\n', source).start() :]  # type: ignore[union-attr]
    given = [x, *weights, *outputs]
    called = ", ".join(f"({_type(given[place])}*)tensors[{place}]" for place in launch.arguments)
    grid, block = ("Place{" + ", ".join(map(str, sizes)) + "}" for sizes in (launch.grid, launch.block))
    call = f"launch({grid}, {block}, [&] {{ {launch.function}({called}); }});"
    run = f'extern "C" void run(void** tensors) {{ {call} }}\n'
    (folder / "kernel.cpp").write_text(f'#include "{Path(__file__).with_name("block.hpp")}"\n{code}\n{run}')
    flags = ["-std=c++20", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread"]
    command = [compiler, *flags, "-o", str(folder / "kernel.so"), str(folder / "kernel.cpp")]
    subprocess.run(command, check=True)
    pointers = (ctypes.c_void_p * len(given))(*(tensor.ctypes.data for tensor in given))
    ctypes.CDLL(str(folder / "kernel.so")).run(pointers)


def _type(tensor: Array) -> str:
    return {"float32": "float", "int32": "int"}[str(tensor.dtype)]


def close(found: Array, right: Array) -> None:
    """As near as sums in float32 are."""
    assert np.abs(found - right).max() <= 1e-6 * np.abs(right).max()


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize(("M", "K", "N"), SIZES)
def test_a_product(stored: str, M: int, K: int, N: int, tmp_path: Path) -> None:
    x, (packed, w), y = numbers(M, K), weight(stored, N, K), np.full((M, N), np.nan, np.float32)
    computed(product.plain_product(shape(stored, M, K, N)), x, [packed], [y], tmp_path)
    close(y, x.astype(np.float64) @ w.T)


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("stored", FORMATS)
def test_two_weights_in_a_long_step(stored: str, tmp_path: Path) -> None:
    """More than 256 rows: warps lie side by side, and do not share the depth by four."""
    M, K, N = 260, 64, 48
    x, y = numbers(M, K), np.full((M, N), np.nan, np.float32)
    both = [weight(stored, N, K, seed) for seed in (1, 2)]
    kernel = product.product(shape(stored, M, K, N), lambda sums, row, column: sums[0] * sums[1], weights=2)
    computed(kernel, x, [packed for packed, _ in both], [y], tmp_path)
    (_, one), (_, other) = both
    close(y, (x.astype(np.float64) @ one.T) * (x.astype(np.float64) @ other.T))


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("stored", FORMATS)
def test_three_products_of_one_x(stored: str, tmp_path: Path) -> None:
    M, K, widths = 65, 64, (70, 16, 33)
    x = numbers(M, K)
    outputs = [np.full((M, N), np.nan, np.float32) for N in widths]
    weights = [weight(stored, N, K, seed) for seed, N in enumerate(widths)]
    kernel = product.products(*(shape(stored, M, K, N) for N in widths))
    computed(kernel, x, [packed for packed, _ in weights], outputs, tmp_path)
    for y, (_, w) in zip(outputs, weights, strict=True):
        close(y, x.astype(np.float64) @ w.T)
