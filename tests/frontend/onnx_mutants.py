"""A small ONNX network, and seeded changes to it that a damaged, hand-made or hostile file may have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_SIZES = (-(2**63), -(2**31), -8, -1, 0, 1, 3, 5, 2**31, 2**40, 2**62, 2**63 - 1)
_TYPES = (-1, 0, 2, 6, 7, 8, 9, 10, 11, 14, 16, 17, 23, 99, 2**31 - 1)
_TEXTS = (
    "",
    "²",
    "1__0",
    "-",
    "a b",
    "%x",
    "n//0",
    "n*n*n",
    "1e9",
    "batch+",
    "é",
    "\n",
    "x" * 300,
    "../x",
    "0x10",
)
_OPERATORS = (
    *(
        "",
        "Relu",
        "Conv",
        "Loop",
        "If",
        "Reshape",
        "Gather",
        "Expand",
        "Tile",
        "Split",
        "TopK",
        "Pad",
        "Resize",
    ),
    *(
        "ConstantOfShape",
        "Range",
        "Einsum",
        "LSTM",
        "Nonsense",
        "Constant",
        "SequenceAt",
        "Dropout",
        "Cast",
        "Shape",
    ),
)

Mutation = Callable[[onnx.ModelProto, random.Random], None]


def write_network(folder: Path) -> Path:
    """A convolution, a product with external data, views and sizes computed on the way; every kind of attribute."""
    rng = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    (folder / "weights.bin").write_bytes(rng.standard_normal((32, 16)).astype(np.float32).tobytes())
    outside = TensorProto(name="outside", data_type=TensorProto.FLOAT, dims=[32, 16])
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "2048")):
        outside.external_data.add(key=key, value=value)
    listed = TensorProto(name="listed", data_type=TensorProto.FLOAT, dims=[16], float_data=[0.5] * 16)
    shape = numpy_helper.from_array(np.array([0, 32], np.int64), "shape")
    axes = numpy_helper.from_array(np.array([2], np.int64), "axes")
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], name="conv"),
        node("Relu", ["c"], ["r"], name="relu"),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
        node("Reshape", ["p", "shape"], ["flat"], allowzero=0),
        node("Gemm", ["flat", "outside", "listed"], ["g"], alpha=0.5, transB=0),
        node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2.0, np.float32))),
        node("Mul", ["g", "two"], ["m"]),
        node("Unsqueeze", ["m", "axes"], ["u"]),
        node("Squeeze", ["u", "axes"], ["s"]),
        node("Concat", ["s", "g"], ["cat"], axis=1),
        node("Split", ["cat"], ["left", "right"], axis=1, num_outputs=2),
        node("Add", ["left", "right"], ["sum"]),
        node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])
    weights = [weight("kernel", 8, 3, 3, 3), weight("bias", 8), shape, axes, outside, listed]
    graph = helper.make_graph(nodes, "net", [image], [result], weights)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def mutant(model: onnx.ModelProto, seed: int) -> tuple[onnx.ModelProto, str]:
    """The model with one to three changes, and their names; the same for the same seed."""
    draw = random.Random(seed)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    chosen = draw.choices(MUTATIONS, k=draw.choice((1, 1, 1, 2, 3)))
    for mutation in chosen:
        mutation(changed, draw)
    return changed, "+".join(mutation.__name__.strip("_") for mutation in chosen)


def _pick(draw: random.Random, items: Sequence[Any]) -> Any:
    """One of a field's items, which other changes may have emptied: then a message that belongs nowhere."""
    return draw.choice(list(items)) if len(items) else None


def _tensor_dims(model: onnx.ModelProto, draw: random.Random) -> None:
    if tensor := _pick(draw, model.graph.initializer):
        if draw.random() < 0.3 or not tensor.dims:
            tensor.dims.append(draw.choice(_SIZES))
        else:
            tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(_SIZES)


def _tensor_type(model: onnx.ModelProto, draw: random.Random) -> None:
    if tensor := _pick(draw, model.graph.initializer):
        tensor.data_type = draw.choice(_TYPES)


def _tensor_data(model: onnx.ModelProto, draw: random.Random) -> None:
    if tensor := _pick(draw, model.graph.initializer):
        raw = tensor.raw_data
        match draw.randrange(5):
            case 0:
                tensor.raw_data = raw[:-1]
            case 1:
                tensor.raw_data = raw + b"\0\0\0"
            case 2:
                tensor.ClearField("raw_data")
            case 3:
                tensor.float_data.append(1.0)
            case _:
                tensor.int64_data.append(-(2**62))


def _tensor_name(model: onnx.ModelProto, draw: random.Random) -> None:
    if tensor := _pick(draw, model.graph.initializer):
        tensor.name = draw.choice(("", "image", "c", "y", "shape", *_TEXTS))


def _tensor_place(model: onnx.ModelProto, draw: random.Random) -> None:
    for tensor in model.graph.initializer:
        if entry := _pick(draw, tensor.external_data):
            part = ("key", "value")[draw.random() < 0.8]
            numbers = ("-1", "4096", "99999999999999999999", "1" * 5000, "²", "1__0", "1.5", "٣")
            setattr(entry, part, draw.choice((*numbers, *_TEXTS)))


def _tensor_goes(model: onnx.ModelProto, draw: random.Random) -> None:
    if len(model.graph.initializer):
        del model.graph.initializer[draw.randrange(len(model.graph.initializer))]


def _tensor_twice(model: onnx.ModelProto, draw: random.Random) -> None:
    if tensor := _pick(draw, model.graph.initializer):
        model.graph.initializer.add().CopyFrom(tensor)


def _node_operator(model: onnx.ModelProto, draw: random.Random) -> None:
    if node := _pick(draw, model.graph.node):
        node.op_type = draw.choice(_OPERATORS)


def _node_domain(model: onnx.ModelProto, draw: random.Random) -> None:
    if node := _pick(draw, model.graph.node):
        node.domain = draw.choice(("partc", "com.microsoft", "ai.onnx.ml", *_TEXTS))


def _node_inputs(model: onnx.ModelProto, draw: random.Random) -> None:
    if node := _pick(draw, model.graph.node):
        names = [name for other in model.graph.node for name in (*other.input, *other.output)]
        match draw.randrange(4):
            case 0:
                node.input.append(draw.choice(("", "nowhere", *names)))
            case 1 if node.input:
                node.input.pop()
            case 2 if node.input:
                node.input[draw.randrange(len(node.input))] = draw.choice(("", "nowhere", *names))
            case _:
                del node.input[:]


def _node_outputs(model: onnx.ModelProto, draw: random.Random) -> None:
    if node := _pick(draw, model.graph.node):
        names = [name for other in model.graph.node for name in (*other.input, *other.output)]
        match draw.randrange(3):
            case 0:
                node.output.append(draw.choice(("", "more", *names)))
            case 1 if node.output:
                node.output[0] = draw.choice(("", *names))
            case _:
                del node.output[:]


def _node_attribute(model: onnx.ModelProto, draw: random.Random) -> None:
    if (node := _pick(draw, model.graph.node)) and (attribute := _pick(draw, node.attribute)):
        attribute.ints[:] = draw.choices(_SIZES, k=len(attribute.ints))
        attribute.i = draw.choice(_SIZES)
        attribute.f = draw.choice((0.0, float("nan"), float("inf"), 1e30))
        attribute.s = draw.choice((b"", b"\xff\xfe", b"SAME_UPPER", b"nonsense"))
        if attribute.HasField("t"):
            attribute.t.data_type = draw.choice(_TYPES)
            attribute.t.dims[:] = draw.choices(_SIZES, k=draw.randrange(3))


def _node_attribute_type(model: onnx.ModelProto, draw: random.Random) -> None:
    if (node := _pick(draw, model.graph.node)) and (attribute := _pick(draw, node.attribute)):
        attribute.type = draw.choice(list(onnx.AttributeProto.AttributeType.values()))
        attribute.name = draw.choice((attribute.name, attribute.name, "axis", *_TEXTS))


def _node_attribute_more(model: onnx.ModelProto, draw: random.Random) -> None:
    if node := _pick(draw, model.graph.node):
        values: tuple[Any, ...] = (1, -1, 2.5, "x", [1, -1], [0.5], ["a", "b"], model.graph)
        name = draw.choice(
            ("axis", "to", "perm", "kernel_shape", "value", "value_ints", "value_string", "body")
        )
        node.attribute.append(helper.make_attribute(name, draw.choice(values)))


def _node_goes(model: onnx.ModelProto, draw: random.Random) -> None:
    if len(model.graph.node):
        del model.graph.node[draw.randrange(len(model.graph.node))]


def _nodes_in_another_order(model: onnx.ModelProto, draw: random.Random) -> None:
    nodes = list(model.graph.node)
    draw.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _value(model: onnx.ModelProto, draw: random.Random) -> Any:
    return _pick(draw, [*model.graph.input, *model.graph.output])


def _value_sizes(model: onnx.ModelProto, draw: random.Random) -> None:
    if (value := _value(model, draw)) and (dim := _pick(draw, value.type.tensor_type.shape.dim)):
        if draw.random() < 0.5:
            dim.dim_value = draw.choice(_SIZES)
        else:
            dim.dim_param = draw.choice(_TEXTS)


def _value_type(model: onnx.ModelProto, draw: random.Random) -> None:
    if value := _value(model, draw):
        match draw.randrange(4):
            case 0:
                value.type.tensor_type.elem_type = draw.choice(_TYPES)
            case 1:
                value.type.tensor_type.ClearField("shape")
            case 2:
                value.ClearField("type")
            case _:
                value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _value_name(model: onnx.ModelProto, draw: random.Random) -> None:
    if value := _value(model, draw):
        value.name = draw.choice(("", "c", "kernel", "position", "index", *_TEXTS))


def _value_twice(model: onnx.ModelProto, draw: random.Random) -> None:
    field = draw.choice((model.graph.input, model.graph.output))
    if value := _pick(draw, field):
        field.add().CopyFrom(value)


def _value_goes(model: onnx.ModelProto, draw: random.Random) -> None:
    field = draw.choice((model.graph.input, model.graph.output))
    if len(field):
        del field[0]


def _versions(model: onnx.ModelProto, draw: random.Random) -> None:
    if draw.random() < 0.3:
        model.ir_version = draw.choice((-1, 0, 1, 3, 99, 2**62))
    elif draw.random() < 0.3 or not model.opset_import:
        del model.opset_import[:]
    else:
        model.opset_import[0].version = draw.choice((-1, 0, 1, 6, 7, 9, 11, 13, 99, 2**62))


def _function(model: onnx.ModelProto, draw: random.Random) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    if draw.random() < 0.5:
        nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]  # calls itself
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model.functions.append(helper.make_function("own", "F", ["x"], ["y"], nodes, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    if node := _pick(draw, model.graph.node):
        node.op_type, node.domain = "F", "own"


MUTATIONS: tuple[Mutation, ...] = (
    *(_tensor_dims, _tensor_type, _tensor_data, _tensor_name, _tensor_place, _tensor_goes, _tensor_twice),
    *(_node_operator, _node_domain, _node_inputs, _node_outputs, _node_goes, _nodes_in_another_order),
    *(_node_attribute, _node_attribute_type, _node_attribute_more),
    *(_value_sizes, _value_type, _value_name, _value_twice, _value_goes, _versions, _function),
)
