"""The language model of `bundles.py` over two devices that a step passes through twice: a, b, a, b."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.runtime.bundles import (
    CACHE,
    HEAD,
    HIDDEN,
    LENGTH,
    VOCABULARY,
    Build,
    Device,
    Part,
    language_model,
    make_model,
)

_X: list[int | str] = ["batch", "sequence", HIDDEN]
_VALUES: dict[str, tuple[str, list[int | str]]] = {
    "embed": ("float32", _X),
    "hidden_1": ("float32", _X),
    "hidden_2": ("float32", _X),
    "sum": ("float32", _X),
    "logits": ("float32", ["batch", 1, VOCABULARY]),
    "token": ("int64", ["batch"]),
}

PROGRAM_A = """\
run part_0 (input_ids) -> (embed, hidden_1)
send hidden_1 to b
recv hidden_2 from b
run part_2 (embed, hidden_2) -> (sum)
send sum to b
recv token from b
emit token
"""
PROGRAM_B = """\
recv hidden_1 from a
run part_1 (hidden_1, position) -> (hidden_2)
send hidden_2 to a
recv sum from a
run part_3 (sum, length) -> (logits)
sample logits -> token
send token to a
"""


def returning_model(engine: str = "ort", **options: Any) -> Build:
    """`embed` stays on a, the cache lies on b; two messages each way in a step. Tokens are `expected_tokens`."""
    options = {"max_batch": 3, "max_requests": 3, **options}
    ring = language_model(engine).devices
    first, second = ring["a"].parts[0].model, ring["b"].parts[0].model
    third, fourth = (_sum(), _head()) if engine == "ort" else (None, None)
    parts_a = [
        Part("part_0", ["input_ids"], ["embed", "hidden_1"], first),
        Part("part_2", ["embed", "hidden_2"], ["sum"], third),
    ]
    parts_b = [
        Part("part_1", ["hidden_1", "position"], ["hidden_2"], second, [CACHE]),
        Part("part_3", ["sum", "length"], ["logits"], fourth),
    ]
    return Build(
        {
            "a": Device(parts_a, dict.fromkeys(("prefill", "decode"), PROGRAM_A), _VALUES),
            "b": Device(parts_b, dict.fromkeys(("prefill", "decode"), PROGRAM_B), _VALUES),
        },
        inputs=[("input_ids", "int64", ["batch", "sequence"])],
        outputs=[("token", "int64", ["batch"])],
        dims={"batch": options["max_batch"], "sequence": options.get("max_sequence", LENGTH)},
        engine=engine,
        **options,
    )


def _sum() -> onnx.ModelProto:
    node = helper.make_node("Add", ["embed", "hidden_2"], ["sum"])
    return make_model(
        [node], [("embed", "float32", _X), ("hidden_2", "float32", _X)], [("sum", "float32", _X)], {}
    )


def _head() -> onnx.ModelProto:
    node = helper.make_node
    return make_model(
        [
            node("Sub", ["length", "one"], ["last"]),
            node("Shape", ["sum"], ["rows"], start=1, end=2),
            node("OneHot", ["last", "rows", "off_on"], ["hot"]),
            node("Unsqueeze", ["hot", "axis_1"], ["pick"]),
            node("MatMul", ["pick", "sum"], ["picked"]),
            node("MatMul", ["picked", "W"], ["logits"]),
        ],
        [("sum", "float32", _X), ("length", "int64", ["batch"])],
        [("logits", "float32", ["batch", 1, VOCABULARY])],
        {
            "W": HEAD,
            "one": np.array(1, np.int64),
            "off_on": np.array([0, 1], np.float32),
            "axis_1": np.array([1], np.int64),
        },
    )
