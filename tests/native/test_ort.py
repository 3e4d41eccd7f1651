"""The native engine over onnxruntime beside Python's: types, memory, and what is said where something is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from partc.errors import PartcError
from partc.format.build import FileEntry, build_json, seal_build
from partc.format.digests import canonical_json
from partc.format.dtypes import DTYPES, ELEMENT_TYPES, Array
from partc.format.names import BUILD_FILE
from partc.format.role import Role, load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.ort_library import VARIABLE
from tests.native.compiled import counts_memory, native_runner
from tests.native.engine_program import NativeEngine
from tests.runtime.bundles import Build, Device, Part, graph_model, language_model, make_model
from tests.runtime.engines.test_memory import MIB
from tests.runtime.engines.test_ort import filled, table
from tests.runtime.runners import Runners

pytestmark = [pytest.mark.native, pytest.mark.ort]
NAMES = [row.long for row in ELEMENT_TYPES]
SHAPE: list[int | str] = ["rows", 4]


def started(built: Path, folder: Path, **options: Any) -> NativeEngine:
    return NativeEngine([built / "engine"], folder, **options)


def written(role: Role, folder: Path) -> None:
    """Put a build that was changed where programs read it."""
    weights = [name for module in role.submodules.values() for name in module.weights]
    files = {
        **dict.fromkeys(weights, FileEntry("0" * 64, 1)),
        **role.files,
    }  # whose digests no engine looks at
    build = seal_build(replace(role.build, files=files))
    (folder / BUILD_FILE).write_text(canonical_json(build_json(build)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """middle = x + 1."""
    return graph_model().write(tmp_path / "build") / "devices" / "a"


def refusal(built: Path, role: Role, folder: Path) -> str:
    """The words of both engines for a sub-module that they do not load."""
    written(role, folder)
    with pytest.raises(PartcError) as right:
        load_engine(role, folder)
    with started(built, folder) as native, pytest.raises(PartcError) as found:
        native.load("part_0")
    assert str(found.value) == str(right.value)
    return str(right.value)


def test_elements_of_every_type(built: Path, tmp_path: Path) -> None:
    """Bits that are a number in any of them, and not the same backwards."""
    nodes = [onnx.helper.make_node("Identity", [f"x_{name}"], [f"y_{name}"]) for name in NAMES]
    inputs = [(f"x_{name}", name, SHAPE) for name in NAMES]
    outputs = [(f"y_{name}", name, SHAPE) for name in NAMES]
    given, made = ([name for name, _, _ in ports] for ports in (inputs, outputs))
    part = Part("part_0", given, made, make_model(nodes, inputs, outputs, {}))
    program = f"run part_0 ({', '.join(given)}) -> ({', '.join(made)})\nemit {', '.join(made)}\n"
    values = {name: (dtype, shape) for name, dtype, shape in outputs}
    device = Device([part], {"prefill": program}, values)
    build = Build({"a": device}, inputs, outputs, {"rows": 6}, task="graph").write(tmp_path / "build")
    place = build / "devices" / "a"
    arrays = [np.arange(8).reshape(2, 4).astype(DTYPES[name]) for name in NAMES]
    with started(built, place) as native:
        native.load("part_0")
        found = native.run("part_0", 0, arrays, {"rows": 2})
    right = load_engine(load_role(place), place).run("part_0", 0, arrays, {"rows": 2})
    for array, one, other in zip(arrays, found, right, strict=True):
        assert one.dtype == other.dtype == array.dtype
        np.testing.assert_array_equal(one, array)
        np.testing.assert_array_equal(other, array)


@pytest.mark.parametrize("rows", [2, MIB // 16])
def test_an_output_stays_as_it_is_while_somebody_has_it(built: Path, folder: Path, rows: int) -> None:
    with started(built, folder) as native:
        native.load("part_0")
        for number in (1, 2, 3):
            native.run("part_0", 0, [filled(number, rows)], {"rows": rows}, keep=True)
        native.run("part_0", 0, [filled(9, rows)], {"rows": rows})
        kept = native.kept()
    for number, array in zip((1, 2, 3), kept, strict=True):
        np.testing.assert_array_equal(array, filled(number + 1, rows))


def test_sizes_change_from_step_to_step(built: Path, folder: Path) -> None:
    with started(built, folder) as native:
        native.load("part_0")
        for rows in (2, 3, 2, 1, MIB // 16, 3):
            (y,) = native.run("part_0", 0, [filled(rows, rows)], {"rows": rows})
            np.testing.assert_array_equal(y, filled(rows + 1, rows))


@counts_memory
def test_weights_lie_where_their_file_is_mapped_and_go_with_their_submodule(
    built: Path, tmp_path: Path
) -> None:
    role, place = table(tmp_path)
    written(role, place)
    x = np.array([[0, 1, 2, 3], [7, 70, 700, 16_000_000]], np.float32)
    with started(built, place) as native:
        before = native.status("RssAnon")
        native.load("part_0")
        assert native.status("RssAnon") - before < 24 * MIB, "no copy of its 64 MiB"
        np.testing.assert_array_equal(native.run("part_0", 0, [x], {"rows": 2})[0], x + 1)
        mapped = native.status("VmSize")
        native.release("part_0")
        assert native.status("VmSize") < mapped - 64 * MIB


def test_weights_that_are_not_there(built: Path, tmp_path: Path) -> None:
    role, place = table(tmp_path)
    (place / "weights.bin").write_bytes(b"")
    assert "cannot map the weights: cannot mmap an empty file" in refusal(built, role, place)
    (place / "weights.bin").unlink()
    assert "No such file or directory" in refusal(built, role, place)


def test_a_file_that_is_no_model(built: Path, folder: Path) -> None:
    (folder / "part_0.onnx").write_bytes(b"no model")
    assert "onnxruntime cannot load it" in refusal(built, load_role(folder), folder)
    (folder / "part_0.onnx").unlink()
    assert "onnxruntime cannot load it" in refusal(built, load_role(folder), folder)


def test_a_model_that_is_not_the_builds(built: Path, folder: Path) -> None:
    role = load_role(folder)
    (module,) = role.submodules.values()
    for fields, what in (({"inputs": ("y",)}, "inputs"), ({"outputs": ("y",)}, "outputs")):
        other = role.changed(submodules=(replace(module, **fields),))
        assert f"its {what} are not those of the build: " in refusal(built, other, folder)


def test_an_input_of_another_type(built: Path, folder: Path) -> None:
    x: list[Array] = [filled(1).astype(np.int64)]
    engine = load_engine(load_role(folder), folder)
    with pytest.raises(PartcError) as right:
        engine.run("part_0", 0, x, {"rows": 2})
    with started(built, folder) as native, pytest.raises(PartcError) as found:
        native.load("part_0")
        native.run("part_0", 0, x, {"rows": 2})
    assert str(found.value) == str(right.value)


def test_options_of_the_engine_reach_onnxruntime(built: Path, folder: Path) -> None:
    role = load_role(folder)
    engine = replace(role.engine, options={"session.intra_op_thread_affinities": "nonsense"}, threads=3)
    written(role.changed(engine=engine), folder)
    with (
        started(built, folder) as native,
        pytest.raises(PartcError, match="consist of only digits: nonsense"),
    ):
        native.load("part_0")


def test_threads_are_those_of_the_build(built: Path, folder: Path) -> None:
    role = load_role(folder)
    counts = []
    for threads in (2, 4):
        written(role.changed(engine=replace(role.engine, threads=threads)), folder)
        with started(built, folder) as native:
            native.load("part_0")
            counts.append(native.threads())
    assert counts[1] - counts[0] == 2


def test_a_provider_that_only_python_has(built: Path, folder: Path) -> None:
    role = load_role(folder)
    written(role.changed(engine=replace(role.engine, provider="cuda")), folder)
    text = "the native runner has no provider 'cuda'"
    with pytest.raises(AssertionError, match=text), started(built, folder) as native:
        native.load("part_0")


@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("/nowhere/libonnxruntime.so", "onnxruntime cannot be loaded: "),
        ("libc.so.6", "it has no OrtGetApiBase"),
    ],
)
def test_a_library_that_is_not_onnxruntime(built: Path, folder: Path, library: str, text: str) -> None:
    env = {**os.environ, VARIABLE: library}
    with pytest.raises(AssertionError, match=text), started(built, folder, env=env) as native:
        native.load("part_0")


def test_without_onnxruntime(built: Path, folder: Path) -> None:
    """The same sentence as Python's; the hint says where the runner looks."""
    env = {**os.environ, VARIABLE: ""}
    text = "this bundle needs onnxruntime, which is not installed\n  hint: pip install onnxruntime, and"
    with pytest.raises(AssertionError, match=text), started(built, folder, env=env) as native:
        native.load("part_0")


def test_the_library_beside_the_runner_is_taken(built: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes((built / "engine").read_bytes())
    (tmp_path / "engine").chmod(0o755)
    (tmp_path / "libonnxruntime.so.1").write_bytes(b"nothing")
    env = {**os.environ, VARIABLE: ""}
    text = r"/libonnxruntime.so.1: onnxruntime cannot be loaded"
    with (
        pytest.raises(AssertionError, match=text),
        NativeEngine([tmp_path / "engine"], folder, env=env) as native,
    ):
        native.load("part_0")


def test_tokens_of_a_ring_are_the_same_whoever_runs_its_devices(tmp_path: Path) -> None:
    build, runner = language_model().write(tmp_path / "build"), native_runner()
    found = []
    for in_python in ("abc", "", "b"):
        with Runners(runner, in_python).launch(build) as ring, ring.client() as client:
            found.append(client.generate([[5, 9, 2]], 8).tokens)
    assert found[1] == found[2] == found[0]
    assert len(set(found[0][0])) > 1
