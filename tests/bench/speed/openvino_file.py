"""A Llama checkpoint as a graph of OpenVINO's operators, in the forms that its processor plugin knows by heart.

    python -m tests.bench.speed.openvino_file CHECKPOINT OUT [float32|int8|int4]

Its own converter goes through torch; this one is written for the random Llamas of this bench and needs numpy alone.
Caches are OpenVINO's states, behind a gather by `beam_idx`, since only then attention and cache become one operator.
Weights of int8 have a scale an output, those of int4 one for 32 inputs, in float16; the head is int8 in both, as its
tools make it. Needs the package openvino.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.llamas import WEIGHTS
from tests.bench.speed.gguf_layouts import rope_theta

MODEL = "model.xml"
BLOCK = 32
"""Weights of int4 that share a scale."""
Array = np.ndarray[Any, Any]
Node = Any
"""An output of an operator; the package has no type hints to speak of."""


class Writer:
    """The graph of one decoder."""

    def __init__(self, checkpoint: Path, kind: str) -> None:
        from safetensors.numpy import load_file

        self._ov: Any = import_module("openvino")
        self._op: Any = import_module("openvino.opset13")
        self._config = json.loads((checkpoint / "config.json").read_text())
        self._tensors = load_file(checkpoint / WEIGHTS)
        self._kind = kind
        self._sinks: list[Node] = []
        self._head = self._config["hidden_size"] // self._config["num_attention_heads"]

    def model(self) -> Any:
        """Inputs: input_ids and position_ids [rows, tokens], beam_idx [rows]; output: the last logits."""
        op, Type = self._op, self._ov.Type
        ids, positions = (op.parameter([-1, -1], Type.i64, name) for name in ("input_ids", "position_ids"))
        self._beams = op.parameter([-1], Type.i32, "beam_idx")
        rows = op.gather(op.shape_of(ids), _ints(op, [0]), _ints(op, 0))
        x = op.gather(self._stored("model.embed_tokens", "int8"), ids, _ints(op, 0))
        turns, mask = self._turns(positions), None
        for number in range(self._config["num_hidden_layers"]):
            name = f"model.layers.{number}"
            normed = self._normed(x, f"{name}.input_layernorm")
            keys, values = (
                self._cached(
                    self._heads(normed, f"{name}.self_attn.{kind}_proj", turned), rows, f"{name}.{kind}"
                )
                for kind, turned in (("k", turns), ("v", None))
            )
            mask = self._mask(positions, keys) if mask is None else mask
            queries = self._heads(normed, f"{name}.self_attn.q_proj", turns)
            x = op.add(x, self._attended(queries, keys, values, mask, name))
            x = op.add(x, self._expanded(self._normed(x, f"{name}.post_attention_layernorm"), f"{name}.mlp"))
        last = op.slice(x, _ints(op, [-1]), _ints(op, [2**31 - 1]), _ints(op, [1]), _ints(op, [1]))
        logits = op.result(self._product(self._normed(last, "model.norm"), "lm_head", "int8"))
        return self._ov.Model([logits], self._sinks, [ids, positions, self._beams], "llama")

    def _normed(self, x: Node, name: str) -> Node:
        op = self._op
        mean = op.reduce_mean(op.power(x, np.float32(2)), _ints(op, [-1]), keep_dims=True)
        root = op.sqrt(op.add(mean, np.float32(self._config["rms_norm_eps"])))
        return op.multiply(
            op.constant(self._tensors[f"{name}.weight"]), op.multiply(x, op.divide(np.float32(1), root))
        )

    def _turns(self, positions: Node) -> tuple[Node, Node]:
        """Cosines and sines [rows, 1, tokens, head]."""
        op, halves = self._op, np.arange(0, self._head, 2, dtype=np.float32) / self._head
        speeds = (rope_theta(self._config) ** -halves).astype(np.float32).reshape(1, -1, 1)
        at = op.convert(op.unsqueeze(positions, _ints(op, [1])), "f32")
        angles = op.transpose(op.matmul(op.constant(speeds), at, False, False), _ints(op, [0, 2, 1]))
        both = op.concat([angles, angles], -1)
        cosines, sines = (op.unsqueeze(turn(both), _ints(op, [1])) for turn in (op.cos, op.sin))
        return cosines, sines

    def _heads(self, x: Node, name: str, turns: tuple[Node, Node] | None) -> Node:
        """A projection as [rows, heads, tokens, head], its halves turned."""
        op, half = self._op, self._head // 2
        split = op.reshape(self._product(x, name), _ints(op, [0, 0, -1, self._head]), special_zero=True)
        heads = op.transpose(split, _ints(op, [0, 2, 1, 3]))
        if turns is None:
            return heads
        first, second = (
            op.slice(heads, _ints(op, [start]), _ints(op, [stop]), _ints(op, [1]), _ints(op, [3]))
            for start, stop in ((0, half), (half, 2**31 - 1))
        )
        swapped = op.concat([op.multiply(second, np.float32(-1)), first], -1)
        return op.add(op.multiply(heads, turns[0]), op.multiply(swapped, turns[1]))

    def _cached(self, new: Node, rows: Node, name: str) -> Node:
        """All keys or values up to these, [rows, key heads, tokens, head]; kept for the next step."""
        op, heads = self._op, self._config["num_key_value_heads"]
        size = op.concat([rows, _ints(op, [heads, 0, self._head])], 0)
        empty = op.broadcast(np.float32(0), size)
        shape = self._ov.PartialShape([-1, heads, -1, self._head])
        before = op.read_value(empty, name, self._ov.Type.f32, shape)
        whole = op.concat([op.gather(before, self._beams, _ints(op, 0)), new], 2)
        self._sinks.append(op.assign(whole, name))
        return whole

    def _mask(self, positions: Node, keys: Node) -> Node:
        """0 where a token may look, -∞ elsewhere: [rows, 1, tokens, all tokens]."""
        op = self._op
        count = op.gather(op.shape_of(keys), _ints(op, 2), _ints(op, 0))
        every = op.range(_ints(op, 0), count, _ints(op, 1), "i64")
        own = op.unsqueeze(op.unsqueeze(positions, _ints(op, [1])), _ints(op, [3]))
        return op.select(op.less_equal(every, own), np.float32(0), np.float32(-np.inf))

    def _attended(self, queries: Node, keys: Node, values: Node, mask: Node, name: str) -> Node:
        op, config = self._op, self._config
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        keys, values = (self._repeated(one, groups) for one in (keys, values))
        found = op.scaled_dot_product_attention(queries, keys, values, mask, causal=False)
        flat = op.reshape(
            op.transpose(found, _ints(op, [0, 2, 1, 3])), _ints(op, [0, 0, -1]), special_zero=True
        )
        return self._product(flat, f"{name}.self_attn.o_proj")

    def _repeated(self, heads: Node, groups: int) -> Node:
        op, count = self._op, self._config["num_attention_heads"]
        wide = op.broadcast(
            op.unsqueeze(heads, _ints(op, [2])),
            _ints(op, [1, 1, groups, 1, 1]),
            broadcast_spec="BIDIRECTIONAL",
        )
        return op.reshape(wide, _ints(op, [0, count, -1, self._head]), special_zero=True)

    def _expanded(self, x: Node, name: str) -> Node:
        op = self._op
        gate, up = (self._product(x, f"{name}.{one}_proj") for one in ("gate", "up"))
        return self._product(op.multiply(op.swish(gate), up), f"{name}.down_proj")

    def _product(self, x: Node, name: str, least: str = "int4") -> Node:
        return self._op.matmul(x, self._stored(name, least), False, True)

    def _stored(self, name: str, least: str) -> Node:
        """A matrix [outputs, inputs], in the format of the model or in `least`, whichever has more bits."""
        weight = self._tensors[f"{name}.weight"]
        if self._kind == "float32":
            return self._op.constant(weight)
        return self._in_8_bits(weight) if "int8" in (self._kind, least) else self._in_4_bits(weight)

    def _in_8_bits(self, weight: Array) -> Node:
        op, scales = self._op, _scales(weight, 127)
        whole = np.clip(np.rint(weight / scales), -127, 127).astype(np.int8)
        return op.convert(op.multiply(op.convert(op.constant(whole), "f16"), op.constant(scales)), "f32")

    def _in_4_bits(self, weight: Array) -> Node:
        op, (outputs, inputs) = self._op, weight.shape
        blocks = weight.reshape(outputs, inputs // BLOCK, BLOCK)
        scales = _scales(blocks, 7)
        whole = np.clip(np.rint(blocks / scales), -8, 7).astype(np.int8)
        scaled = op.multiply(op.convert(op.constant(whole, self._ov.Type.i4), "f16"), op.constant(scales))
        return op.convert(op.reshape(scaled, _ints(op, [outputs, inputs]), False), "f32")


def _scales(blocks: Array, most: int) -> Array:
    """One of float16 for every row of the last axis."""
    scales: Array = np.abs(blocks).max(-1, keepdims=True) / most
    return scales.astype(np.float16)


def _ints(op: Any, values: int | list[int]) -> Node:
    return op.constant(np.array(values, np.int64))


def write_openvino(checkpoint: Path, out: Path, kind: str) -> None:
    """`model.xml` and its weights in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    model = Writer(checkpoint, kind).model()
    import_module("openvino").save_model(model, str(out / MODEL), compress_to_fp16=False)


if __name__ == "__main__":
    write_openvino(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
