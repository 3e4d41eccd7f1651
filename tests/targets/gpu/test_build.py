"""Code for GPUs: what the same input gives twice, launches, and forms of operators that need care of their own."""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.format.dtypes import DTYPES, Array
from partc.format.gpu_code import OPENCL_FILE, digest_line
from partc.format.kernel_plan import KERNELS_FILE, KernelPlan, kernels_digest
from partc.format.kernel_plan_rules import load_kernel_plan, plan_problems
from partc.runtime.engines.gpu.contract import Content, open_driver
from partc.runtime.engines.gpu.library import GpuLibrary
from tests.targets.compiled_steps import Compiled, module_of, write_weights
from tests.targets.opencl import on_opencl

pytestmark = [pytest.mark.tvm, pytest.mark.opencl]
pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

from targets.tvm.gpu.link import ALIGNMENT, build_gpu  # noqa: E402
from targets.tvm.machine import machine_of  # noqa: E402
from targets.tvm.toolchain import Toolchain  # noqa: E402

MACHINE = machine_of("x86_64", "", (), "opencl", "")
ROWS, COLUMNS = 5, 7
ONE = {"batch": 1, "sequence": 1}
LINES = [
    f"input %x: f32[batch, sequence, {COLUMNS}]",
    f'weight %w = f32[{COLUMNS}, 8] from "m.safetensors"#"w"',
    "%product: f32[batch, sequence, 8] = MatMul(%x, %w)",
    "%y: f32[batch, sequence, 8] = Softmax(%product) {axis = -1}",
    "output %y",
]


def compiled(lines: Sequence[str], folder: Path) -> Compiled:
    write_weights(folder, {"w": np.random.default_rng(1).standard_normal((COLUMNS, 8)).astype(np.float32)})
    return Compiled(module_of(lines, folder, "tvm", 1), folder / "build", on_opencl("phone"))


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        compiled(LINES, tmp_path / name)
        device = tmp_path / name / "build" / "devices" / "phone"
        files.append([(device / file).read_bytes() for file in (OPENCL_FILE, KERNELS_FILE)])
        assert str(tmp_path).encode() not in files[-1][0]
    assert files[0] == files[1]


def test_code_and_plan_belong_together(tmp_path: Path) -> None:
    compiled(LINES, tmp_path)
    device = tmp_path / "build" / "devices" / "phone"
    plan = load_kernel_plan(device / KERNELS_FILE)
    assert isinstance(plan.launches, dict)
    source = (device / OPENCL_FILE).read_text()
    assert source.splitlines()[0] == digest_line(kernels_digest(plan.kernels, plan.launches))
    for launch in (launch for every in plan.launches.values() for launch in every):
        assert f"void {launch.function}(" in source
    places = [place for f in plan.functions.values() for call in f.calls for place in call.arguments]
    assert {place.at % ALIGNMENT for place in places if place.room == "arena"} == {0}


# Forms


def test_a_value_multiplied_by_itself(tmp_path: Path) -> None:
    """Both parameters of the kernel have the name of the value."""
    kind = f"f32[batch, sequence, {COLUMNS}]"
    squares = compiled([f"input %x: {kind}", f"%y: {kind} = Mul(%x, %x)", "output %y"], tmp_path)
    x = np.arange(COLUMNS, dtype=np.float32).reshape(1, 1, COLUMNS)
    np.testing.assert_array_equal(squares.run({"x": x}, ONE)["y"], x * x)


def test_a_product_over_one_number(tmp_path: Path) -> None:
    """Attention of one token over itself has such products."""
    lines = ["input %x: f32[batch, 4, sequence, 1]", "input %v: f32[batch, 4, 1, 8]"]
    lines += ["%y: f32[batch, 4, sequence, 8] = MatMul(%x, %v)", "output %y"]
    product = compiled(lines, tmp_path)
    x, v = (np.random.default_rng(2).standard_normal((1, 4, 1, size)).astype(np.float32) for size in (1, 8))
    np.testing.assert_allclose(product.run({"x": x, "v": v}, ONE)["y"], x * v, rtol=1e-6)


@pytest.mark.parametrize("call", ["CumSum(%x, %axis)", "Tan(%x)"])
def test_operators_of_their_own(tmp_path: Path, call: str) -> None:
    kind = f"f32[batch, sequence, {COLUMNS}]"
    lines = [f"input %x: {kind}", "const %axis = i64[] [2]", f"%y: {kind} = {call}", "output %y"]
    x = np.linspace(-1, 1, COLUMNS, dtype=np.float32).reshape(1, 1, COLUMNS)
    right = np.tan(x) if call.startswith("Tan") else np.cumsum(x, 2)
    np.testing.assert_allclose(compiled(lines, tmp_path).run({"x": x}, ONE)["y"], right, rtol=1e-5, atol=1e-6)


# Scratch memory


def two_loops() -> Any:
    """A kernel whose second loop reads all of what the first one adds up."""
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def twice_added(x: T.Buffer((ROWS, COLUMNS), "float32"), y: T.Buffer((ROWS, COLUMNS), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        between = T.sblock_alloc_buffer((ROWS,), "float32")
        for i, j in T.grid(ROWS, COLUMNS):
            with T.sblock("first"):
                row, column = T.axis.remap("SR", [i, j])
                with T.init():
                    between[row] = T.float32(0)
                between[row] = between[row] + x[row, column]
        for i, j, k in T.grid(ROWS, COLUMNS, ROWS):
            with T.sblock("second"):
                row, column, other = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[row, column] = T.float32(0)
                y[row, column] = y[row, column] + between[other] * x[row, column]

    return twice_added


def test_what_a_kernel_leaves_between_its_loops_has_a_place_in_the_plan(tmp_path: Path) -> None:
    builder, kind = relax.BlockBuilder(), relax.TensorType([ROWS, COLUMNS], "float32")
    kernel, x = builder.add_func(two_loops(), "twice_added"), relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            once = builder.emit(relax.call_tir(kernel, [x], kind))
            twice = builder.emit(relax.call_tir(kernel, [once], kind))
            result = builder.emit_output(relax.Tuple([twice]))
        builder.emit_func_output(result)
    plan = build_gpu(builder.finalize(), ["main"], MACHINE, Toolchain(), tmp_path)
    (parameters,) = (kernel.parameters for kernel in plan.kernels.values())
    assert [one.access for one in parameters] == ["read", "write", "write"]
    assert isinstance(plan.launches, dict)
    (launches,) = plan.launches.values()
    assert len(launches) == 2, "a launch is over before the next one begins"
    assert list(plan_problems(plan)) == []
    given = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    once_added = given * given.sum()
    np.testing.assert_allclose(run(plan, tmp_path, given), once_added * once_added.sum(), rtol=1e-5)


def run(plan: KernelPlan, folder: Path, given: Array) -> Array:
    """The output of the function `main` for one input."""
    driver, function = open_driver("opencl"), plan.functions["main"]
    content = Content((folder / OPENCL_FILE).read_bytes(), kernels_digest(plan.kernels, plan.launches))
    library = GpuLibrary(driver, driver.load(content), plan, folder)
    buffer = driver.allocate(given.nbytes)
    driver.write(buffer, given)
    library.prepare(function, [buffer])()
    (output,) = function.outputs
    found = np.zeros(output.shape, DTYPES[output.dtype])
    driver.read(library.place(output.place, output.bytes, [buffer]), found)
    return found
