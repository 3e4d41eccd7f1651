"""Small bundles made by hand, so that the runner is tested without the compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from partc.format.build import Build as DeviceBuild
from partc.format.build import (
    EngineSpec,
    Memory,
    Model,
    Port,
    State,
    Submodule,
    TensorType,
    build_json,
    seal_build,
)
from partc.format.digests import canonical_json, data_digest
from partc.format.dtypes import ELEMENT_TYPES
from partc.format.files import hash_folder
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from partc.format.placement import Placement, placement_json, seal_placement, stages_of
from partc.runtime.shell.keys import make_keys

PLAN = hashlib.sha256(b"plan").hexdigest()
VOCABULARY, HIDDEN, LENGTH = 17, 8, 24
EOS = 3

Json = dict[str, Any]


@dataclass
class Part:
    """One sub-module of a device."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    model: onnx.ModelProto | None = None
    states: Sequence[State] = ()

    @property
    def file(self) -> str:
        return f"{self.name}.onnx" if self.model else f"{self.name}.txt"


@dataclass
class Device:
    """One device of a bundle."""

    parts: Sequence[Part]
    programs: Mapping[str, str]
    values: Mapping[str, tuple[str, list[int | str]]] = field(default_factory=dict)


@dataclass
class Build:
    """All devices of a build; the first one is the source."""

    devices: Mapping[str, Device]
    inputs: Sequence[tuple[str, str, list[int | str]]]
    outputs: Sequence[tuple[str, str, list[int | str]]]
    dims: Mapping[str, int]
    task: str = "text-generation"
    engine: str = "ort"
    max_batch: int = 1
    max_requests: int = 1
    max_sequence: int = LENGTH
    prompt_chunk: int | None = None
    prefix_reuse: bool = False
    plan_id: str = PLAN
    predicted: Mapping[str, float] = field(default_factory=lambda: {"prefill_s": 0.01, "decode_s": 0.01})
    tokenizer: str | None = None
    """tokenizer.json of the source."""

    def write(self, folder: Path) -> Path:
        placement = placement_json(self.placement())
        for name, device in self.devices.items():
            place = folder / "devices" / name
            self._write_files(place, name, device)
            build = seal_build(self._build(place, name, device))
            (place / BUILD_FILE).write_text(canonical_json(build_json(build)))
            (place / PLACEMENT_FILE).write_text(canonical_json(placement))
        make_keys(folder, list(self.devices), next(iter(self.devices)))
        return folder

    def placement(self) -> Placement:
        ring = tuple(self.devices)
        phases = next(iter(self.devices.values())).programs
        stages = stages_of([name for name, device in self.devices.items() for _ in device.parts])
        return seal_placement(
            Placement(
                placement_id="",
                plan_id=self.plan_id,
                source=ring[0],
                ring=ring,
                stages=dict.fromkeys(phases, stages),
                programs={
                    phase: {name: device.programs[phase] for name, device in self.devices.items()}
                    for phase in phases
                },
                addresses=dict.fromkeys(ring),
                predicted=self.predicted,
            )
        )

    def _write_files(self, folder: Path, name: str, device: Device) -> None:
        folder.mkdir(parents=True)
        for part in device.parts:
            content = part.model.SerializeToString() if part.model else part.name.encode()
            (folder / part.file).write_bytes(content)
        if self.tokenizer is not None and name == next(iter(self.devices)):
            (folder / "tokenizer").mkdir()
            (folder / "tokenizer" / "tokenizer.json").write_text(self.tokenizer)

    def _build(self, folder: Path, name: str, device: Device) -> DeviceBuild:
        return DeviceBuild(
            plan_id=self.plan_id,
            device=name,
            target=self.engine,
            model=Model(
                name="tiny",
                task=self.task,
                dtype="float32",
                max_sequence=self.max_sequence,
                max_batch=self.max_batch,
                max_requests=self.max_requests,
                vocab_size=VOCABULARY,
                eos_token_ids=(EOS,),
                pad_token_id=0,
                bos_token_id=None,
                labels=None,
                prompt_chunk=self.prompt_chunk,
                prefix_reuse=self.prefix_reuse,
            ),
            inputs=tuple(Port(n, d, tuple(s)) for n, d, s in self.inputs),
            outputs=tuple(Port(n, d, tuple(s)) for n, d, s in self.outputs),
            dims=self.dims,
            values={n: TensorType(d, tuple(s)) for n, (d, s) in device.values.items()},
            submodules=tuple(
                Submodule(
                    part.name, part.file, (), tuple(part.inputs), tuple(part.outputs), tuple(part.states)
                )
                for part in device.parts
            ),
            engine=EngineSpec(self.engine, "cpu", 1),
            memory=Memory(0, 0, 0, 0),
            toolkit={},
            files=hash_folder(folder),
            digest="",
        )


def reseal(path: Path, **changes: Any) -> None:
    """Change keys of a build.json or placement.json, and give it the digest or id that belongs to it then."""
    raw = {**json.loads(path.read_text()), **changes}
    path.write_text(canonical_json(resealed(raw)))


def resealed(raw: Json) -> Json:
    """The data of a build.json or placement.json with the digest or id that belongs to them."""
    key = "digest" if str(raw.get("format")).startswith("partc-build/") else "placement_id"
    out = {key} if key == "digest" else {key, "addresses"}
    return {**raw, key: data_digest({name: value for name, value in raw.items() if name not in out})}


# -- a language model of three parts: its cache lies on the middle device, its embedding skips that device

_RANDOM = np.random.default_rng(7)
EMBED = _RANDOM.normal(size=(VOCABULARY, HIDDEN)).astype(np.float32)
MIX = _RANDOM.normal(size=(HIDDEN, HIDDEN)).astype(np.float32)
HEAD = _RANDOM.normal(size=(HIDDEN, VOCABULARY)).astype(np.float32)

_X: list[int | str] = ["batch", "sequence", HIDDEN]
_VALUES: dict[str, tuple[str, list[int | str]]] = {
    "embed": ("float32", _X),
    "hidden_1": ("float32", _X),
    "hidden_2": ("float32", _X),
    "logits": ("float32", ["batch", 1, VOCABULARY]),
    "token": ("int64", ["batch"]),
}
_CACHE_SHAPE = ("batch", LENGTH, HIDDEN)
CACHE = State("cache.0.key", "cache.0.key", "cache.0.key.out", "float32", _CACHE_SHAPE, "rows")


def language_model(engine: str = "ort", **options: Any) -> Build:
    """Three devices a, b, c; the residual `embed` goes from a to c directly."""
    models = _models() if engine == "ort" else (None, None, None)
    options = {"max_batch": 3, "max_requests": 3, **options}
    devices = {
        "a": Device(
            [Part("part_0", ["input_ids"], ["embed", "hidden_1"], models[0])],
            _both(
                "run part_0 (input_ids) -> (embed, hidden_1)\n"
                "send hidden_1 to b\nsend embed to c\nrecv token from c\nemit token\n"
            ),
            _only("embed", "hidden_1", "token"),
        ),
        "b": Device(
            [Part("part_1", ["hidden_1", "position"], ["hidden_2"], models[1], [CACHE])],
            _both(
                "recv hidden_1 from a\nrun part_1 (hidden_1, position) -> (hidden_2)\nsend hidden_2 to c\n"
            ),
            _only("hidden_1", "hidden_2"),
        ),
        "c": Device(
            [Part("part_2", ["hidden_2", "embed", "length"], ["logits"], models[2])],
            _both(
                "recv embed from a\nrecv hidden_2 from b\n"
                "run part_2 (hidden_2, embed, length) -> (logits)\n"
                "sample logits -> token\nsend token to a\n"
            ),
            _only("embed", "hidden_2", "logits", "token"),
        ),
    }
    return Build(
        devices,
        inputs=[("input_ids", "int64", ["batch", "sequence"])],
        outputs=[("token", "int64", ["batch"])],
        dims={"batch": options["max_batch"], "sequence": options.get("max_sequence", LENGTH)},
        engine=engine,
        **options,
    )


def expected_tokens(prompt: Sequence[int], count: int) -> list[int]:
    """The greedy tokens of the model, computed without any cut or cache."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(expected_logits(tokens))))
    return tokens[len(prompt) :]


def expected_logits(tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    embed = EMBED[list(tokens)]
    hidden_1 = np.tanh(embed)
    means = np.cumsum(hidden_1, axis=0) / np.arange(1, len(tokens) + 1)[:, None]
    hidden_2 = hidden_1 + np.tanh(means @ MIX)
    return np.asarray((hidden_2[-1] + embed[-1]) @ HEAD, np.float32)


def _models() -> tuple[onnx.ModelProto, onnx.ModelProto, onnx.ModelProto]:
    node = helper.make_node
    first = make_model(
        [node("Gather", ["E", "input_ids"], ["embed"]), node("Tanh", ["embed"], ["hidden_1"])],
        [("input_ids", "int64", ["batch", "sequence"])],
        [("embed", "float32", _X), ("hidden_1", "float32", _X)],
        {"E": EMBED},
    )
    second = make_model(
        [
            node("TensorScatter", ["cache.0.key", "hidden_1", "position"], ["cache.0.key.out"], axis=1),
            node("Shape", ["hidden_1"], ["count"], start=1, end=2),
            node("Squeeze", ["count"], ["rows"]),
            node("Range", ["zero", "rows", "one"], ["row"]),
            node("Unsqueeze", ["position", "axis_1"], ["start"]),
            node("Add", ["start", "row"], ["last"]),
            node("Unsqueeze", ["last", "axis_2"], ["last_"]),
            node("LessOrEqual", ["columns", "last_"], ["seen"]),
            node("Cast", ["seen"], ["mask"], to=TensorProto.FLOAT),
            node("MatMul", ["mask", "cache.0.key.out"], ["sums"]),
            node("Add", ["last_", "one"], ["number"]),
            node("Cast", ["number"], ["number_"], to=TensorProto.FLOAT),
            node("Div", ["sums", "number_"], ["means"]),
            node("MatMul", ["means", "W"], ["mixed"]),
            node("Tanh", ["mixed"], ["bent"]),
            node("Add", ["hidden_1", "bent"], ["hidden_2"]),
        ],
        [
            ("hidden_1", "float32", _X),
            ("position", "int64", ["batch"]),
            ("cache.0.key", "float32", _CACHE_SHAPE),
        ],
        [("hidden_2", "float32", _X), ("cache.0.key.out", "float32", _CACHE_SHAPE)],
        {
            "W": MIX,
            "zero": np.array(0, np.int64),
            "one": np.array(1, np.int64),
            "axis_1": np.array([1], np.int64),
            "axis_2": np.array([2], np.int64),
            "columns": np.arange(LENGTH, dtype=np.int64),
        },
    )
    third = make_model(
        [
            node("Add", ["hidden_2", "embed"], ["sum"]),
            node("Sub", ["length", "one"], ["last"]),
            node("Shape", ["embed"], ["rows"], start=1, end=2),
            node("OneHot", ["last", "rows", "off_on"], ["hot"]),
            node("Unsqueeze", ["hot", "axis_1"], ["pick"]),
            node("MatMul", ["pick", "sum"], ["picked"]),
            node("MatMul", ["picked", "W"], ["logits"]),
        ],
        [("hidden_2", "float32", _X), ("embed", "float32", _X), ("length", "int64", ["batch"])],
        [("logits", "float32", ["batch", 1, VOCABULARY])],
        {
            "W": HEAD,
            "one": np.array(1, np.int64),
            "off_on": np.array([0, 1], np.float32),
            "axis_1": np.array([1], np.int64),
        },
    )
    return first, second, third


# -- a graph of two parts, for tasks of one step


def graph_model(**options: Any) -> Build:
    """y = (x + 1) * 2 over two devices, x f32[rows, 4]; and the middle value itself."""
    node = helper.make_node
    shape: list[int | str] = ["rows", 4]
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    first = make_model(
        [node("Add", ["x", "c"], ["middle"])],
        [("x", "float32", shape)],
        [("middle", "float32", shape)],
        {"c": one},
    )
    second = make_model(
        [node("Mul", ["middle", "c"], ["y"])],
        [("middle", "float32", shape)],
        [("y", "float32", shape)],
        {"c": two},
    )
    values: dict[str, tuple[str, list[int | str]]] = {"middle": ("float32", shape), "y": ("float32", shape)}
    devices = {
        "a": Device(
            [Part("part_0", ["x"], ["middle"], first)],
            {"prefill": "run part_0 (x) -> (middle)\nsend middle to b\nrecv y from b\nemit y, middle\n"},
            values,
        ),
        "b": Device(
            [Part("part_1", ["middle"], ["y"], second)],
            {"prefill": "recv middle from a\nrun part_1 (middle) -> (y)\nsend y to a\n"},
            values,
        ),
    }
    return Build(
        devices,
        inputs=[("x", "float32", shape)],
        outputs=[("y", "float32", shape), ("middle", "float32", shape)],
        dims={"rows": 6},
        task="graph",
        **options,
    )


# -- a classifier of two parts: the mean over the valid tokens of each sequence

TYPES = _RANDOM.normal(size=(2, HIDDEN)).astype(np.float32)


def classifier(**options: Any) -> Build:
    """logits = mean over the first `length` tokens of (embed + type) @ HEAD; f32[batch, VOCABULARY]."""
    node = helper.make_node
    first = make_model(
        [
            node("Gather", ["E", "input_ids"], ["word"]),
            node("Gather", ["T", "token_type_ids"], ["type"]),
            node("Add", ["word", "type"], ["embed"]),
        ],
        [("input_ids", "int64", ["batch", "sequence"]), ("token_type_ids", "int64", ["batch", "sequence"])],
        [("embed", "float32", _X)],
        {"E": EMBED, "T": TYPES},
    )
    second = make_model(
        [
            node("Unsqueeze", ["length", "axis_1"], ["end"]),
            node("Less", ["index", "end"], ["valid"]),
            node("Cast", ["valid"], ["mask"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["mask", "axis_1"], ["row"]),
            node("MatMul", ["row", "embed"], ["sum_"]),
            node("Squeeze", ["sum_", "axis_1"], ["sum"]),
            node("Cast", ["end"], ["count"], to=TensorProto.FLOAT),
            node("Div", ["sum", "count"], ["mean"]),
            node("MatMul", ["mean", "W"], ["logits"]),
        ],
        [("embed", "float32", _X), ("length", "int64", ["batch"]), ("index", "int64", ["sequence"])],
        [("logits", "float32", ["batch", VOCABULARY])],
        {"W": HEAD, "axis_1": np.array([1], np.int64)},
    )
    logits: tuple[str, list[int | str]] = ("float32", ["batch", VOCABULARY])
    devices = {
        "a": Device(
            [Part("part_0", ["input_ids", "token_type_ids"], ["embed"], first)],
            {
                "prefill": "run part_0 (input_ids, token_type_ids) -> (embed)\nsend embed to b\n"
                "recv logits from b\nemit logits\n"
            },
            {"embed": ("float32", _X), "logits": logits},
        ),
        "b": Device(
            [Part("part_1", ["embed", "length", "index"], ["logits"], second)],
            {
                "prefill": "recv embed from a\nrun part_1 (embed, length, index) -> (logits)\n"
                "send logits to a\n"
            },
            {"embed": ("float32", _X), "logits": logits},
        ),
    }
    return Build(
        devices,
        inputs=[(name, "int64", ["batch", "sequence"]) for name in ("input_ids", "token_type_ids")],
        outputs=[("logits", *logits)],
        dims={"batch": 3, "sequence": LENGTH},
        task="text-classification",
        max_batch=3,
        **options,
    )


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, str, Sequence[int | str]]],
    outputs: Sequence[tuple[str, str, Sequence[int | str]]],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    types = {row.long: row.onnx for row in ELEMENT_TYPES}

    def info(items: Sequence[tuple[str, str, Sequence[int | str]]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, types[dtype], shape) for name, dtype, shape in items]

    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "part", info(inputs), info(outputs), weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def _both(text: str) -> dict[str, str]:
    return {"prefill": text, "decode": text}


def _only(*names: str) -> dict[str, tuple[str, list[int | str]]]:
    return {name: _VALUES[name] for name in names}
