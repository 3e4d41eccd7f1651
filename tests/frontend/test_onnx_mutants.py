"""ONNX files that are damaged, written by hand or hostile: compiled, or refused with a place; never a bug."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from partc.cli.main import run
from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from partc.errors import ModelError
from partc.frontend import load_module
from partc.ir.graph import Constant
from partc.ir.weights import Array
from tests.families.check import devices_file
from tests.frontend.onnx_mutants import mutant, write_network

pytestmark = pytest.mark.hf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.yaml").write_text("model: {onnx: net.onnx}\ntask: graph\nmax_batch: 2\n")
    devices_file(tmp_path, 2)
    write_network(tmp_path)
    return tmp_path


def _plan(folder: Path, command: str = "plan") -> int:
    options = ["--target", str(folder / "devices2.yaml"), "--strategy", "even"]
    more = ["-o", str(folder / "build")] if command == "compile" else []
    return run([command, str(folder / "model.yaml"), *options, *more])


def test_the_network_itself_is_compiled(folder: Path) -> None:
    assert _plan(folder, "compile") == 0


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(100, 600, 100))]
)
def test_no_mutant_ends_in_a_bug(first: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    for seed in range(first, first + 100):
        changed, what = mutant(model, seed)
        (folder / "net.onnx").write_bytes(changed.SerializeToString())
        code = _plan(folder)
        said = capsys.readouterr().err
        assert code in (0, 1), f"seed {seed}, {what}: exit code {code}\n{said}"
        assert code == 0 or "where: " in said or "no plan fits" in said, f"seed {seed}, {what}:\n{said}"


@pytest.mark.ort
def test_what_is_planned_is_compiled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    planned = 0
    for seed in range(1000, 1100):
        changed, what = mutant(model, seed)
        (folder / "net.onnx").write_bytes(changed.SerializeToString())
        if _plan(folder) == 0:
            planned += 1
            assert _plan(folder, "compile") in (0, 1), f"seed {seed}, {what}:\n{capsys.readouterr().err}"
    assert planned >= 5


def _change_dims(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -8


def _huge_dims(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**40, 2**40]


def _negative_outside(model: onnx.ModelProto) -> None:
    model.graph.initializer[4].dims[:] = [-32, -16]


def _cut_data(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-1]


def _no_data(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("raw_data")


def _data_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].float_data.append(1)


def _data_of_another_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[5].data_type = TensorProto.DOUBLE


def _of_type(number: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].data_type = number

    return change


def _input_of_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = -1


def _no_operator(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "Nonsense"


def _more_inputs(model: onnx.ModelProto) -> None:
    model.graph.node[1].input.append("image")


def _unknown_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute.append(helper.make_attribute("body", 1))


def _damaged_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[5].attribute[0].t.dims[:] = [-1]


def _length(text: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[4].external_data[2].value = text

    return change


def _another_order(model: onnx.ModelProto) -> None:
    first, second = list(model.graph.node)[:2]
    kept = list(model.graph.node)[2:]
    del model.graph.node[:]
    model.graph.node.extend([second, first, *kept])


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "c"


def _no_outputs(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _version(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 2**62


def _recursion(model: onnx.ModelProto) -> None:
    nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]
    imports = [helper.make_opsetid("own", 1)]
    model.functions.append(helper.make_function("own", "F", ["x"], ["y"], nodes, imports))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_change_dims, r"\[-8, 3, 3, 3\] are no sizes of a tensor"),
        (_huge_dims, "are no sizes of a tensor"),
        (_negative_outside, r"\[-32, -16\] are no sizes of a tensor"),
        (_cut_data, "863 bytes of data, 864 expected"),
        (_no_data, "0 bytes of data, 864 expected"),
        (_data_twice, "it has data twice: float_data and raw_data"),
        (_data_of_another_type, "double cannot stand in float_data"),
        (_of_type(0), "the element type undefined is not one that partc reads"),
        (_of_type(-1), "the element type -1 is not one that partc reads"),
        (_of_type(99), "the element type 99 is not one that partc reads"),
        (_of_type(TensorProto.STRING), "the element type string is not one that partc reads"),
        (_input_of_type, "the element type -1 is not one that partc reads"),
        (_no_operator, "not a legal node: No Op registered for Nonsense"),
        (_more_inputs, r"not a legal node: .*has input size 2 not in range"),
        (_unknown_attribute, "not a legal node: Unrecognized attribute: body"),
        (_damaged_attribute, r"\[-1\] are no sizes of a tensor"),
        (_length("²"), "bad offset or length '²'"),
        (_length("9" * 5000), "bad offset or length '9999"),
        (_length("2047"), "2047 bytes of external data, 2048 expected"),
        (_another_order, "it reads 'c', which no node before it computes"),
        (_twice, "the value 'c' is computed twice"),
        (_no_outputs, "the model has no outputs"),
        (_version, "4611686018427387904 is no version of ONNX"),
        (_recursion, "its functions cannot be inlined"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[onnx.ModelProto], None], said: str, folder: Path) -> None:
    path = folder / "net.onnx"
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=said) as caught:
        load_module(ModelConfig(OnnxFile(path), task="graph"))
    assert str(caught.value.where).startswith(str(path))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, np.int32, np.uint32, np.bool_])
@pytest.mark.parametrize("raw", [True, False])
def test_data_in_the_field_of_its_type_is_read(dtype: type, raw: bool, tmp_path: Path) -> None:
    values: Array = np.ones((2, 3), dtype)
    tensor = numpy_helper.from_array(values, "w")
    if not raw:
        numbers = values.view(np.uint16) if dtype is np.float16 else values
        tensor = helper.make_tensor("w", tensor.data_type, [2, 3], numbers.reshape(-1).tolist())
        if dtype is np.float16:
            tensor = TensorProto(name="w", data_type=TensorProto.FLOAT16, dims=[2, 3])
            tensor.int32_data.extend(numbers.reshape(-1).tolist())
    x, y = (helper.make_tensor_value_info(name, tensor.data_type, ["n", 3]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "w"], ["y"], axis=0)], "g", [x], [y], [tensor]
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    module = load_module(ModelConfig(OnnxFile(path), task="graph", max_batch=2))
    (constant,) = module.graph.leaves()
    assert isinstance(constant, Constant)
    np.testing.assert_array_equal(np.asarray(constant.array), values)


@pytest.mark.parametrize(
    ("name", "symbol"), [("1__0", "_1__0"), ("²", "_"), ("a b", "a_b"), ("größe", "gr__e"), ("n//0", "n__0")]
)
def test_a_size_of_any_name_has_a_symbol(name: str, symbol: str, folder: Path) -> None:
    path = folder / "net.onnx"
    model = onnx.load(path, load_external_data=False)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    path.write_bytes(model.SerializeToString())
    module = load_module(ModelConfig(OnnxFile(path), task="graph", max_batch=2))
    assert module.graph.inputs[0].shape == (symbol, 3, 8, 8)
    assert _plan(folder) == 0


def test_sizes_of_different_names_have_different_symbols(folder: Path) -> None:
    path = folder / "net.onnx"
    model = onnx.load(path, load_external_data=False)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[2].dim_param, dims[3].dim_param = "a b", "a_b", "a b"
    path.write_bytes(model.SerializeToString())
    config = ModelConfig(OnnxFile(path), task="graph", dims={"a b": 2, "a_b": 8})
    assert load_module(config).graph.inputs[0].shape == ("a_b", 3, "a_b_1", "a_b")


def test_a_model_that_computes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "net.onnx"
    model = onnx.load(path, load_external_data=False)
    model.graph.output[0].CopyFrom(model.graph.input[0])
    path.write_bytes(model.SerializeToString())
    assert _plan(folder) == 1
    assert "the model computes nothing" in capsys.readouterr().err


def test_the_mutants_stay_the_same(folder: Path) -> None:
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    first, second = (mutant(model, 7)[0].SerializeToString(deterministic=True) for _ in range(2))
    assert first == second != model.SerializeToString(deterministic=True)
