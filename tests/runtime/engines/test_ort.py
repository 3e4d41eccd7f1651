"""What the engine over ONNX Runtime does with the memory of inputs and outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from partc.errors import BundleError
from partc.format.dtypes import Array
from partc.format.role import Role, load_role
from partc.runtime.engines import ort as ort_engine
from partc.runtime.engines import ort_session
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.ort import OrtEngine
from tests.runtime.bundles import graph_model, make_model
from tests.runtime.engines.test_memory import MIB, resident

pytestmark = pytest.mark.ort


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> OrtEngine:
    """y = x + 1."""
    folder = graph_model().write(tmp_path_factory.mktemp("engine") / "build") / "devices" / "a"
    return loaded(load_role(folder), folder)


def test_an_output_stays_as_it_is_while_somebody_has_it(engine: OrtEngine) -> None:
    kept = [run(engine, number) for number in range(4)]
    part = run(engine, 4)[:1]
    run(engine, 5)
    for number, array in enumerate(kept):
        np.testing.assert_array_equal(array, filled(number + 1))
    np.testing.assert_array_equal(part, filled(5)[:1])


def test_memory_that_nobody_has_is_used_again(engine: OrtEngine) -> None:
    addresses = {run(engine, number).ctypes.data for number in range(4)}
    assert len(addresses) == 1


def test_an_input_is_as_it_was_when_it_came(engine: OrtEngine) -> None:
    x = filled(1)
    x.flags.writeable = False
    np.testing.assert_array_equal(engine.run("part_0", 0, [x], {"rows": 2})[0], filled(2))
    run(engine, 9)
    np.testing.assert_array_equal(x, filled(1))


def test_sizes_change_from_step_to_step(engine: OrtEngine) -> None:
    for rows in (2, 3, 2, 1, 3):
        (y,) = engine.run("part_0", 0, [filled(rows, rows)], {"rows": rows})
        np.testing.assert_array_equal(y, filled(rows + 1, rows))


def test_large_tensors_are_bound_where_they_lie(engine: OrtEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_engine, "_STAYS_BELOW_BYTES", 0)
    given = [filled(number) for number in range(3)]
    kept = [engine.run("part_0", 0, [x], {"rows": 2})[0] for x in given]
    for number in range(3):
        np.testing.assert_array_equal(given[number], filled(number))
        np.testing.assert_array_equal(kept[number], filled(number + 1))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("lends", [True, False], ids=["lent", "mapped by onnxruntime"])
def test_weights_lie_where_their_file_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lends: bool
) -> None:
    if not lends:
        monkeypatch.setattr(ort_session, "_READS_LENT_FILES", (1 << 20, 0))
    role, folder = table(tmp_path)
    before = resident()
    engine = loaded(role, folder)
    assert resident() - before < 24 * MIB, "no copy of its 64 MiB"
    x = np.array([[0, 1, 2, 3], [7, 70, 700, 16_000_000]], np.float32)
    np.testing.assert_array_equal(engine.run("part_0", 0, [x], {"rows": 2})[0], x + 1)
    assert len(engine._loaded["part_0"].session.files.of) == lends


def test_weights_that_are_not_there_are_a_fault_of_the_bundle(tmp_path: Path) -> None:
    role, folder = table(tmp_path)
    (folder / "weights.bin").write_bytes(b"")
    with pytest.raises(BundleError, match="weights"):
        loaded(role, folder)


def loaded(role: Role, folder: Path) -> OrtEngine:
    engine = load_engine(role, folder)
    assert isinstance(engine, OrtEngine)
    return engine


def table(build: Path) -> tuple[Role, Path]:
    """y = numbers[x], the numbers 1, 2, 3 ... in a file of their own, 64 MiB."""
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["i"], to=onnx.TensorProto.INT64),
        onnx.helper.make_node("Gather", ["numbers", "i"], ["middle"]),
    ]
    return with_weights(build, nodes, np.arange(1, (16 << 20) + 1, dtype=np.float32), 4)


def matrix(build: Path, size: int) -> tuple[Role, Path]:
    """y = x @ numbers, a matrix of `size` bytes, which onnxruntime packs."""
    nodes = [onnx.helper.make_node("MatMul", ["x", "numbers"], ["middle"])]
    columns = size // 16
    return with_weights(build, nodes, np.ones((4, columns), np.float32), columns)


def with_weights(build: Path, nodes: list[onnx.NodeProto], numbers: Array, columns: int) -> tuple[Role, Path]:
    folder = graph_model().write(build / "build") / "devices" / "a"
    numbers.tofile(folder / "weights.bin")
    model = make_model(nodes, [("x", "float32", ["rows", 4])], [("middle", "float32", ["rows", columns])], {})
    tensor = model.graph.initializer.add(name="numbers", data_type=onnx.TensorProto.FLOAT, dims=numbers.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    onnx.save(model, folder / "part_0.onnx")
    role = load_role(folder)
    module = replace(role.submodules["part_0"], weights=("weights.bin",))
    return role.changed(submodules=(module,)), folder


def run(engine: OrtEngine, number: int) -> Array:
    return engine.run("part_0", 0, [filled(number)], {"rows": 2})[0]


def filled(number: int, rows: int = 2) -> Array:
    return np.full((rows, 4), number, np.float32)
