"""Kernels of quantised products against numpy, for every instruction set that this processor has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partc.format.dtypes import Array
from partc.ir.panels import panels, panels_of
from partc.ir.weight_formats import format_of, quantize, scales
from partc.runtime.processor import architecture
from tests.targets.aarch64 import COMPILER, EMULATOR

pytestmark = pytest.mark.tvm
tvm = pytest.importorskip("tvm")

from targets.tvm.kernels.instructions import INSTRUCTION_SETS, InstructionSet, instructions_of  # noqa: E402
from targets.tvm.kernels.quantize_activations import quantize_blocks, quantize_whole  # noqa: E402
from targets.tvm.kernels.quantized import (  # noqa: E402
    quantized_product,
    quantized_product_added,
    quantized_product_gated,
    quantized_products,
)
from targets.tvm.kernels.quantized_experts import experts_of_rows  # noqa: E402
from targets.tvm.kernels.quantized_format import Format  # noqa: E402
from targets.tvm.kernels.quantized_gather import rows_of_panels  # noqa: E402
from targets.tvm.machine import Machine, features_of_host, machine_of  # noqa: E402
from targets.tvm.quantized import sums_of  # noqa: E402
from tests.targets.emulated_kernels import call_emulated  # noqa: E402

FEATURES: dict[str, tuple[str, ...]] = {
    "avx512-vnni": ("vnni",), "avx-vnni": ("avxvnni",), "avx2": (), "neon-dotprod": (), "neon": ("neon",),
}  # fmt: skip
"""Instruction set → features that choose it."""
HERE = set(Path("/proc/cpuinfo").read_text().split())


def machine(isa: InstructionSet) -> Machine:
    return machine_of(isa.arch, "", FEATURES[isa.name], "cpu", "")


def is_emulated(isa: InstructionSet) -> bool:
    return isa.arch == "aarch64" != architecture()


def cannot_run(isa: InstructionSet) -> str:
    """What is missing; empty where its code can run here."""
    if is_emulated(isa):
        missing = {tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None}
    else:
        missing = set(machine(isa).needs()) - HERE
    return f"no {', '.join(sorted(missing))}" if missing else ""


def marks(isa: InstructionSet) -> list[pytest.MarkDecorator]:
    emulated = [pytest.mark.qemu] if is_emulated(isa) else []
    return [*emulated, pytest.mark.skipif(bool(cannot_run(isa)), reason=cannot_run(isa))]


SETS = [pytest.param(isa, id=isa.name, marks=marks(isa)) for isa in INSTRUCTION_SETS]
FORMATS = st.sampled_from([(4, 32), (4, 64), (4, 128), (8, 0), (8, 16), (8, 32), (8, 64)])
How = tuple[int, int]
"""Bits and block of a format."""
many = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
GARBAGE = 1e6


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def call(isa: InstructionSet, function: Any, *arrays: Array) -> list[Array]:
    """What the arrays are after the kernel ran over them."""
    if is_emulated(isa):
        return call_emulated(function, machine(isa), arrays)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(module, target=machine(isa).target())["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def depth_of(columns: int, how: How) -> int:
    _, block = how
    return -(-columns // block) * block if block else columns


def quantized_rows(isa: InstructionSet, x: Array, how: How) -> Array:
    """Activations as the kernel makes them."""
    (rows, columns), depth = x.shape, depth_of(x.shape[1], how)
    blank = np.full(Format(isa, *how, rows, depth, 1).x_type[0], 77, np.int32)
    if sums := sums_of(*how):
        return call(isa, quantize_blocks(rows, columns, depth, sums), x, blank)[-1]
    return call(isa, quantize_whole(rows, columns, isa.unsigned), x, blank)[-1]


def rounded(x: Array, block: int) -> Array:
    """Activations in float64 as they are after they were bytes."""
    rows, columns = x.shape
    width = 32 if block else columns
    blocks = np.pad(x, ((0, 0), (0, -columns % width))).reshape(rows, -1, width)
    largest = np.abs(blocks).max(2, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    steps = np.rint(blocks * inverse).astype(np.float64) * (largest * np.float32(1 / 127))
    found: Array = steps.reshape(rows, -1)[:, :columns]
    return found


def expected(x: Array, weight: Array, how: How) -> Array:
    """What a product of bytes is, in float64."""
    stored = format_of(*how).dequantize(quantize(weight, *how), scales(weight, *how))[:, : weight.shape[1]]
    found: Array = rounded(x, how[1]) @ stored.astype(np.float64).T
    return found


def close(found: Array, right: Array) -> None:
    assert np.abs(found - right).max() <= 3e-6 * max(1.0, float(np.abs(right).max()))


def check_product(isa: InstructionSet, how: How, rows: int, columns: int, width: int) -> None:
    x, weight = numbers(rows, columns), numbers(width, columns, seed=1)
    x[rows // 2] = 0  # a row of nothing has no scale
    f = Format(isa, *how, rows, depth_of(columns, how), width)
    blank = np.full((rows, width), GARBAGE, np.float32)
    found = call(isa, quantized_product(f), quantized_rows(isa, x, how), panels(weight, *how), blank)[-1]
    close(found, expected(x, weight, how))
    assert not found[rows // 2].any()


def check_sum(isa: InstructionSet, how: How, rows: int, width: int, is_bias: bool) -> None:
    x, weight = numbers(rows, 70), numbers(width, 70, seed=1)
    added = numbers(1 if is_bias else rows, width, seed=2)
    f = Format(isa, *how, rows, depth_of(70, how), width)
    operands = quantized_rows(isa, x, how), panels(weight, *how), added
    blank = np.full((rows, width), GARBAGE, np.float32)
    found = call(isa, quantized_product_added(f, len(added)), *operands, blank)[-1]
    close(found, expected(x, weight, how) + added)


def check_gate(isa: InstructionSet, how: How, rows: int, width: int) -> None:
    x, gate, up = numbers(rows, 70), numbers(width, 70, seed=1), numbers(width, 70, seed=2)
    f = Format(isa, *how, rows, depth_of(70, how), width)
    operands = quantized_rows(isa, x, how), panels(gate, *how), panels(up, *how)
    blank = np.full((rows, width), GARBAGE, np.float32)
    found = call(isa, quantized_product_gated(f, "swish"), *operands, blank)[-1]
    gates = expected(x, gate, how)
    close(found, gates / (1 + np.exp(-gates)) * expected(x, up, how))


def check_products(isa: InstructionSet, how: How, rows: int, widths: list[int]) -> None:
    x, weights = numbers(rows, 70), [numbers(width, 70, seed=width) for width in widths]
    formats = [Format(isa, *how, rows, depth_of(70, how), width) for width in widths]
    operands = quantized_rows(isa, x, how), *(panels(weight, *how) for weight in weights)
    blanks = [np.full((rows, width), GARBAGE, np.float32) for width in widths]
    found = call(isa, quantized_products(*formats), *operands, *blanks)[-len(widths) :]
    for got, weight in zip(found, weights, strict=True):
        close(got, expected(x, weight, how))


def check_experts(isa: InstructionSet, how: How, rows: int, experts: int, width: int, seed: int) -> None:
    x, weights = numbers(rows, 70), [numbers(width, 70, seed=expert + 1) for expert in range(experts)]
    chosen = np.random.default_rng(seed).integers(0, experts, rows)
    f = Format(isa, *how, rows, depth_of(70, how), width)
    stacked = np.stack([panels(weight, *how) for weight in weights])
    blank = np.full((rows, width), GARBAGE, np.float32)
    operands = quantized_rows(isa, x, how), chosen, stacked
    found = call(isa, experts_of_rows(f, experts, "int64"), *operands, blank)[-1]
    right = [expected(x[row : row + 1], weights[expert], how)[0] for row, expert in enumerate(chosen)]
    close(found, np.array(right))


@dataclass(frozen=True)
class Kernel:
    """A kernel that is compared with numpy over random sizes."""

    check: Callable[..., None]
    sizes: tuple[st.SearchStrategy[Any], ...]
    """What `check` takes behind the instruction set."""
    always: Sequence[tuple[Any, ...]]
    """Sizes of every run, in 4 bits some of few rows and some of more than any set calls few; others are slow, for
    each is compiled."""


KERNELS = {
    "product": Kernel(
        check_product,
        (FORMATS, st.integers(1, 40), st.integers(1, 330), st.integers(1, 150)),
        [
            ((4, 64), 7, 150, 37),
            ((4, 32), 27, 70, 100),
            ((8, 0), 15, 70, 100),
            ((8, 16), 1, 70, 40),
            ((8, 32), 23, 70, 100),
        ],
    ),
    "product with a sum": Kernel(
        check_sum,
        (FORMATS, st.integers(1, 9), st.integers(1, 150), st.booleans()),
        [((4, 32), 5, 50, True), ((4, 32), 23, 50, False), ((8, 0), 3, 100, False), ((8, 16), 5, 50, True)],
    ),
    "gated product": Kernel(
        check_gate,
        (FORMATS, st.integers(1, 9), st.integers(1, 150)),
        [((4, 128), 1, 100), ((4, 64), 26, 70), ((8, 0), 9, 21), ((8, 16), 22, 70)],
    ),
    "products of one operand": Kernel(
        check_products,
        (FORMATS, st.integers(1, 9), st.lists(st.integers(1, 150), min_size=2, max_size=3)),
        [((4, 32), 6, [40, 7, 100]), ((4, 32), 22, [40, 90]), ((8, 0), 1, [64, 90]), ((8, 32), 2, [64, 90])],
    ),
    "experts": Kernel(
        check_experts,
        (FORMATS, st.integers(1, 40), st.integers(1, 6), st.integers(1, 100), st.integers(0, 99)),
        [((4, 64), 30, 5, 50, 1), ((4, 32), 50, 2, 50, 1), ((8, 0), 3, 2, 90, 2), ((8, 16), 30, 2, 90, 2)],
    ),
}


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel(name: str, isa: InstructionSet) -> None:
    for sizes in KERNELS[name].always:
        KERNELS[name].check(isa, *sizes)


@pytest.mark.in_turns(3)
@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_any_size(name: str, isa: InstructionSet) -> None:
    kernel = KERNELS[name]

    @many
    @given(st.tuples(*kernel.sizes))
    def each(sizes: tuple[Any, ...]) -> None:
        kernel.check(isa, *sizes)

    each()


@pytest.mark.parametrize("how", [(4, 32), (8, 0), (8, 16)])
def test_a_nan_among_activations_makes_a_scale_of_nan(how: How) -> None:
    """It must not become a number; rows and blocks beside it are as without it."""
    isa, x = next(isa for isa in INSTRUCTION_SETS if not cannot_run(isa)), numbers(3, 70)
    whole = quantized_rows(isa, x, how)
    x[1, 40] = np.nan
    found = quantized_rows(isa, x, how)
    unit = 9 + sums_of(*how)  # words, scale and sums of a block
    place = unit + 8 if how[1] else -1  # behind the words of the second block, or of the row
    assert np.isnan(found.view(np.float32)[1, place])
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])
    if how[1]:
        np.testing.assert_array_equal(found[1, :unit], whole[1, :unit])
        sums = whole[:, unit - sums_of(*how) : unit]
        each = whole[:, :8].copy().view(np.int8).astype(np.int32).reshape(3, sums_of(*how), -1)
        np.testing.assert_array_equal(sums, -8 * each.sum(-1))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS, ids=lambda isa: isa.name)
def test_kernels_of_every_run_have_more_rows_than_a_set_calls_few(isa: InstructionSet) -> None:
    for kernel in KERNELS.values():
        rows = [sizes[1] / (sizes[2] if kernel.check is check_experts else 1) for sizes in kernel.always]
        assert max(rows) > isa.few4


@pytest.mark.parametrize("isa", INSTRUCTION_SETS, ids=lambda isa: isa.name)
def test_sums_of_gate_and_product_are_small_enough_for_the_stack(isa: InstructionSet) -> None:
    """TVM takes 1 KB and more from the heap, where LLVM cannot keep all of it in registers.

    Of few rows they lie in memory anyway: a panel after the other adds to them.
    """
    kernel = quantized_product_gated(Format(isa, 4, 32, 64, 64, 64), "swish")
    sums = re.findall(r"alloc_buffer\(\((\d+), (\d+), 16\)\)", kernel.script())
    assert len(sums) == 2
    assert all(4 * int(rows) * int(panels) * 16 < 1024 for rows, panels in sums)


@many
@given(FORMATS, st.integers(1, 200), st.integers(1, 150), st.data())
def test_rows_of_a_table(how: How, rows: int, columns: int, data: st.DataObject) -> None:
    isa = next(isa for isa in INSTRUCTION_SETS if not cannot_run(isa))
    table, width = numbers(rows, columns), depth_of(columns, how)
    places = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5)), np.int64)
    stream = panels(table, *how)
    kernel = rows_of_panels(*how, len(places), rows, width, stream.shape)
    found = call(isa, kernel, stream, places, np.full((len(places), width), GARBAGE, np.float32))[-1]
    whole = format_of(*how).dequantize(quantize(table, *how), scales(table, *how))
    np.testing.assert_array_equal(found, whole[places, :width])


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("how", [(4, 32), (8, 0), (8, 16), (8, 32)])
def test_a_prompt_in_pieces_gives_the_same_bits_on_every_instruction_set(how: How) -> None:
    x, weight = numbers(27, 200), numbers(100, 200, seed=1)
    found = []
    for isa in INSTRUCTION_SETS:
        if cannot_run(isa):
            continue
        for begin, end in ((0, 27), (0, 1), (1, 4), (4, 17)):
            part = x[begin:end]
            f = Format(isa, *how, len(part), depth_of(200, how), 100)
            blank = np.full((len(part), 100), GARBAGE, np.float32)
            operands = quantized_rows(isa, part, how), panels(weight, *how)
            found.append((begin, end, call(isa, quantized_product(f), *operands, blank)[-1]))
    whole = found[0][2]
    for begin, end, piece in found:
        assert piece.tobytes() == whole[begin:end].tobytes()


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("how", [(8, 16), (8, 32)])
def test_the_largest_bytes_of_others_are_multiplied_exactly(isa: InstructionSet, how: How) -> None:
    """Checkpoints may have -128, which partc itself never writes: its magnitude is no byte with a sign."""
    data = np.full((20, 64 // how[1], how[1]), -128, np.int8)
    data[1::3], data[2::3] = 127, np.tile(np.array([-128, 127], np.int8), how[1] // 2)
    x = np.ones((2, 64), np.float32) * [[127], [-127]]
    blank = np.full((2, 20), GARBAGE, np.float32)
    stream = panels_of(data, np.ones(data.shape[:2], np.float32), 8)
    q = quantized_rows(isa, x.astype(np.float32), how)
    found = call(isa, quantized_product(Format(isa, *how, 2, 64, 20)), q, stream, blank)[-1]
    np.testing.assert_allclose(found, x @ data.reshape(20, 64).T.astype(np.float64), rtol=1e-6)


def test_no_instruction_is_used_that_a_processor_may_lack() -> None:
    """LLVM ends the process where an intrinsic meets a machine without the feature."""
    assert {isa.name: instructions_of(machine(isa)) for isa in INSTRUCTION_SETS} == {
        isa.name: isa for isa in INSTRUCTION_SETS
    }
    for isa in INSTRUCTION_SETS:
        assert isa.needs <= machine(isa).enabled()
    assert instructions_of(machine_of("x86_64", "", ("avx512",), "cpu", "")) == machine_set("avx2")
    assert instructions_of(machine_of("aarch64", "", ("i8mm",), "cpu", "")) == machine_set("neon-dotprod")
    assert instructions_of(machine_of("aarch64", "", ("sve",), "cpu", "")) == machine_set("neon")


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("how", [(4, 32), (8, 0), (8, 16)])
@pytest.mark.parametrize("rows", [1, 2])
def test_asking_for_weights_ahead_changes_no_number(isa: InstructionSet, how: How, rows: int) -> None:
    x, weight = numbers(rows, 200), numbers(100, 200, seed=1)
    q, w = quantized_rows(isa, x, how), panels(weight, *how)
    blank = np.full((rows, 100), GARBAGE, np.float32)
    plain, ahead = (Format(replace(isa, asks_ahead=asks), *how, rows, 200, 100) for asks in (False, True))
    expected, found = (call(isa, quantized_product(f), q, w, blank)[-1] for f in (plain, ahead))
    np.testing.assert_array_equal(found, expected)
    asks = ["llvm.prefetch" in quantized_product(f).script() for f in (plain, ahead)]
    assert asks == ([False, True] if ahead.is_few else [True, True]), "more rows ask for lines of results"


def test_processors_of_intel_want_weights_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of AMD do not: the feature is of no instruction, and `arch: host` goes by the maker."""
    assert instructions_of(machine_of("x86_64", "", ("vnni", "prefetch"), "cpu", "")).asks_ahead
    assert not instructions_of(machine_of("x86_64", "", ("vnni",), "cpu", "")).asks_ahead
    monkeypatch.setattr("targets.tvm.machine.architecture", lambda: "x86_64")
    monkeypatch.setattr("targets.tvm.machine.processor_features", lambda: frozenset({"avx2", "fma"}))
    for vendor, expected in (("GenuineIntel", ("avx2", "prefetch")), ("AuthenticAMD", ("avx2",))):
        monkeypatch.setattr("targets.tvm.machine.processor_vendor", lambda vendor=vendor: vendor)
        assert features_of_host() == expected


@pytest.mark.parametrize(("name", "needs"), [("neon-dotprod", {"asimd", "asimddp"}), ("neon", {"asimd"})])
def test_builds_for_aarch64_name_the_features_that_a_runner_looks_for(name: str, needs: set[str]) -> None:
    assert set(machine(machine_set(name)).needs()) == needs


def machine_set(name: str) -> InstructionSet:
    return next(isa for isa in INSTRUCTION_SETS if isa.name == name)


ARM = [isa for isa in INSTRUCTION_SETS if isa.arch == "aarch64"]
PRODUCTS = {"sdot": 16, "smlal": 8, "smlal2": 8, "smull": 8, "smull2": 8}
"""Instruction → products of bytes."""


def inner_loops(listing: str) -> list[list[str]]:
    """The instructions of loops that have no loop inside, and multiply bytes."""
    lines = [line.strip() for line in listing.splitlines()]
    labels = {line[:-1]: place for place, line in enumerate(lines) if re.fullmatch(r"\.L\w+:", line)}
    jumps = ((place, re.match(r"(?:b\.|cb|tb).*(\.L\w+)$", line)) for place, line in enumerate(lines))
    loops = [(labels[jump[1]], place) for place, jump in jumps if jump and labels[jump[1]] < place]
    inner = [own for own in loops if not any(own != o and own[0] <= o[0] and o[1] <= own[1] for o in loops)]
    codes = [[line for line in lines[a:b] if re.match(r"[a-z]", line)] for a, b in inner]
    return [code for code in codes if any(line.split()[0] in PRODUCTS for line in code)]


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("isa", ARM, ids=[isa.name for isa in ARM])
@pytest.mark.parametrize("how", [(4, 32), (8, 0), (8, 32)])
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_inner_loops_on_aarch64_keep_to_the_registers(isa: InstructionSet, how: How, rows: int) -> None:
    """Nothing is spilled, words of activations cost no instruction each, and weights no more than their unpacking."""
    kernel = quantized_product(Format(isa, *how, rows, 256, 256)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), target=machine(isa).target())
    (loop,) = inner_loops(built.mod.inspect_source("s"))
    assert not [line for line in loop if "[sp" in line]
    names = [line.split()[0] for line in loop]
    products = sum(PRODUCTS.get(name, 0) for name in names)
    assert products % (16 * 32) == 0, "whole blocks of 16 outputs"
    assert names.count("ext") == 0
    if isa.name == "neon-dotprod":
        assert names.count("dup") + names.count("ld1r") <= 2 * rows
        assert len(names) <= (0.26 if how[1] and rows == 1 else 0.2) * products
