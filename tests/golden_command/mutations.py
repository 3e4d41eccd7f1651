"""Changes of everything that a record depends on, each with what `partc golden check` has to say about it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from partc.golden import origin as origins
from partc.ir.graph import Module, Node, Value
from partc.pipeline.contract import Context, Pass
from partc.pipeline.versions import library_versions

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    },
    "qwen3": {
        "model_type": "qwen3",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    },
    "gemma2": {
        "model_type": "gemma2",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
    },
}
DEVICES: dict[str, Any] = {
    "source": "phone",
    "devices": {
        name: {
            "target": "null",
            "arch": "aarch64",
            "flops": flops,
            "memory_bandwidth": "200 MB/s",
            "memory": "260 kB",
        }
        for name, flops in (("phone", "2 GFLOP/s"), ("board", "8 GFLOP/s"), ("old", "1 GFLOP/s"))
    },
    "links": {"default": {"bandwidth": "100 Mbit/s", "latency": "50 us"}},
}


@dataclass
class Reader:
    """A user's folder: golden.yaml, and what it names."""

    folder: Path
    model: dict[str, Any]
    devices: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(DEVICES))
    case: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, family: str) -> Reader:
        config = copy.deepcopy(FAMILIES[family])
        model = {
            "model": {"config": config, "seed": 0},
            "max_sequence": 64,
            "workload": {"prompt": 16, "generate": 32},
        }
        keep = ["graph", "weights", "plan"]
        return cls(
            folder,
            model,
            case={"model": "model.yaml", "devices": "devices.yaml", "keep": keep, "times": True},
        )

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.model["model"]["config"]
        return config

    def write(self) -> None:
        """Write the three files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = {"model": self.model, "devices": self.devices, "golden": {"cases": {"tiny": self.case}}}
        for name, content in files.items():
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


Mutate = Callable[[Reader, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A change, and what has to be said."""

    name: str
    mutate: Mutate
    cause: str
    """A part of one of the causes of the first change."""
    told: str
    """A part of the key of one of the changes."""


def mutations() -> Iterator[Mutation]:
    """All of them, the same for each family."""
    yield from _configs()
    yield from _settings()
    yield from _devices()
    yield from _code()
    yield from _versions()


def _configs() -> Iterator[Mutation]:
    for key, value, told in (
        ("num_hidden_layers", 5, "operator added"),
        ("num_hidden_layers", 3, "operator removed"),
        ("hidden_size", 256, "no longer compiled"),
        ("intermediate_size", 64, "size changed"),
        ("vocab_size", 96, "model fact/vocab_size"),
        ("rms_norm_eps", 1e-3, "attribute changed"),
        ("hidden_act", "relu", "operator"),
        ("rope_theta", 5000.0, "operand changed"),
        ("tie_word_embeddings", True, "operand changed"),
    ):
        cause = "norm_eps" if key == "rms_norm_eps" else f"model.config.{key}"
        yield Mutation(f"config {key} {value}", _config(key, value), cause, told)
    yield Mutation(
        "seed", lambda reader, _: reader.model["model"].update(seed=1), "model.seed", "weight changed"
    )


def _config(key: str, value: object) -> Mutate:
    def mutate(reader: Reader, _: pytest.MonkeyPatch) -> None:
        known = {
            "gpt_neox": {"rms_norm_eps": "layer_norm_eps"},
            "gemma2": {"hidden_act": "hidden_activation"},
        }.get(reader.config["model_type"], {})
        reader.config[known.get(key, key)] = value

    return mutate


def _settings() -> Iterator[Mutation]:
    for name, changes, cause, told in (
        ("max_sequence", {"max_sequence": 48}, "model.max_sequence", "model fact/"),
        ("max_batch", {"max_batch": 8}, "model.max_batch", "no longer compiled"),
        ("max_requests", {"max_requests": 2}, "model.max_requests", "model fact/max_requests"),
        ("int8", {"quantize": "int8"}, "model.quantize", "operator replaced/MatMul"),
        (
            "int4",
            {"quantize": {"weights": "int4", "block": 16}},
            "model.quantize",
            "operator replaced/MatMul",
        ),
        ("float16", {"dtype": "float16"}, "model.dtype", "type changed"),
        ("workload", {"workload": {"prompt": 32, "generate": 8}}, "model.workload", "model fact/prompt"),
    ):
        yield Mutation(f"model.yaml {name}", _model(changes), cause, told)
    yield Mutation(
        "strategy", lambda reader, _: reader.case.update(strategy="even"), "golden.strategy", "plan/"
    )
    yield Mutation(
        "cut rule", lambda reader, _: reader.case.update(cut_rule="all"), "golden.cut_rule", "cut candidate"
    )


def _model(changes: dict[str, Any]) -> Mutate:
    return lambda reader, _: reader.model.update(copy.deepcopy(changes))


def _devices() -> Iterator[Mutation]:
    for name, device, changes, told in (
        ("more memory", "board", {"memory": "2 MB"}, "plan/"),
        ("less memory", "phone", {"memory": "200 kB"}, "plan/memory given/phone"),
        ("faster", "old", {"flops": "90 GFLOP/s", "memory_bandwidth": "9 GB/s"}, "plan/"),
        ("slower", "board", {"memory_bandwidth": "1 MB/s"}, "plan/"),
        ("overhead", "old", {"overhead": "10 kB"}, "plan/memory"),
        ("calls", "phone", {"call_overhead": "1 ms"}, "predicted time"),
    ):
        yield Mutation(f"device {name}", _device(device, changes), f"devices.devices.{device}", told)
    for name, top, cause, told in (
        ("throughput", {"objective": "throughput"}, "devices.objective", "planned otherwise/objective"),
        ("memory fraction", {"memory_fraction": 0.95}, "devices.memory_fraction", "memory given"),
        ("slow link", _link("1 Mbit/s", "50 us"), "devices.default_link", "plan/"),
        ("latency", _link("100 Mbit/s", "9 ms"), "devices.default_link", "plan/"),
        ("pin", {"pin": {"old": "layers 1-1"}}, "devices.pin", "plan/"),
        ("source", {"source": "board"}, "devices.source", "plan/"),
        ("ban", {"ban": {"board": "layers 0-3"}}, "devices.ban", "plan/"),
        ("survive", {"survive": "one"}, "devices.survive", "plan/"),
    ):
        yield Mutation(f"devices {name}", _top(top), cause, told)
    yield Mutation(
        "device removed", lambda reader, _: reader.devices["devices"].pop("board"), "devices.board", "plan/"
    )
    yield Mutation("device renamed", _renamed, "devices.devices.tablet", "device used/tablet")


def _link(bandwidth: str, latency: str) -> dict[str, Any]:
    return {"links": {"default": {"bandwidth": bandwidth, "latency": latency}}}


def _device(name: str, changes: dict[str, Any]) -> Mutate:
    return lambda reader, _: reader.devices["devices"][name].update(changes)


def _top(changes: dict[str, Any]) -> Mutate:
    return lambda reader, _: reader.devices.update(copy.deepcopy(changes))


def _renamed(reader: Reader, _: pytest.MonkeyPatch) -> None:
    reader.devices["devices"]["tablet"] = reader.devices["devices"].pop("board")


def _code() -> Iterator[Mutation]:
    """Passes whose code is another one: each does something more to the graph that it leaves."""
    for step, file, attribute in (
        ("canonicalize", "canonicalize.py", "passes.canonicalize:Canonicalize"),
        ("infer-sizes", "infer_sizes.py", "passes.infer_sizes:InferSizes"),
        ("fuse-operators", "fuse_operators.py", "passes.fuse_operators:FuseOperators"),
        ("quantize-weights", "quantize_weights.py", "passes.quantize_weights:QuantizeWeights"),
    ):
        yield Mutation(
            f"pass {step} adds an operator",
            _pass(attribute, file, _add),
            f"passes/{file}",
            "operator added/Relu",
        )
        yield Mutation(
            f"pass {step} replaces an operator",
            _pass(attribute, file, _replace),
            f"passes/{file}",
            "operator replaced/",
        )
    yield Mutation("planner", _planner, "partc's sources (planner)", "plan/")
    yield Mutation("importer", _importer, "partc's sources (import)", "operator added/Relu")


def _pass(attribute: str, file: str, change: Callable[[Module], None]) -> Mutate:
    def mutate(_: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = attribute.replace(":", ".")
        original = _found(attribute).apply

        def apply(self: Pass, module: Module, context: Context) -> bool:
            found = original(self, module, context)
            change(module)
            return found

        monkeypatch.setattr(f"{kind}.apply", apply)
        _edit(monkeypatch, f"passes/{file}")

    return mutate


def _found(attribute: str) -> type[Pass]:
    from importlib import import_module

    module, _, name = attribute.partition(":")
    kind: type[Pass] = getattr(import_module(module), name)
    return kind


def _edit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a source of partc be another one."""
    original = origins.origin_of

    def origin_of(*arguments: Any) -> origins.Origin:
        made = original(*arguments)
        return origins.Origin(made.versions, {**made.sources, name: "edited"}, made.settings, made.steps)

    for module in ("making", "origin"):
        monkeypatch.setattr(f"partc.golden.{module}.origin_of", origin_of)


def _add(module: Module) -> None:
    """A Relu behind the first normalisation or sum; only once, however often the pass runs."""
    node = _middle(module)
    if any(reader.op == "Relu" and reader.scope == "added" for reader in module.graph.nodes):
        return
    value = node.outputs[0]
    made = Value("added.relu", value.dtype, value.shape)
    module.graph.replace_uses({value: made})
    relu = Node("Relu", [value], [made], scope="added")
    module.graph.nodes.insert(module.graph.nodes.index(node) + 1, relu)


def _replace(module: Module) -> None:
    for node in module.graph.nodes:
        if node.op == "Mul" and "mlp" in node.scope:
            node.op = "Sub"
    for node in module.graph.nodes:
        if node.op in ("Add", "Tanh", "Softmax") and "layers.1" in node.scope:
            node.op = {"Add": "Max", "Tanh": "Erf", "Softmax": "LogSoftmax"}[node.op]


def _middle(module: Module) -> Node:
    found = [node for node in module.graph.nodes if node.op == "Add" and "layers.1" in node.scope]
    return found[-1]


def _planner(_: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner whose best plan is an even one."""
    from partc.planner.solve import STRATEGIES

    monkeypatch.setitem(STRATEGIES, "optimal", STRATEGIES["even"])
    _edit(monkeypatch, "planner")


def _importer(_: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    _edit(monkeypatch, "import")
    _import(monkeypatch)


def _import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import leave another graph."""
    from partc.api import models

    original = models.import_model

    def import_model(*arguments: Any, **options: Any) -> Module:
        module = original(*arguments, **options)
        _add(module)
        return module

    monkeypatch.setattr("partc.api.compiling.import_model", import_model)


def _versions() -> Iterator[Mutation]:
    for library in ("transformers", "torch", "onnxscript"):
        yield Mutation(f"another {library}", _library(library), f"{library} ", "operator added/Relu")


def _library(name: str) -> Mutate:
    def mutate(_: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "partc.golden.origin.library_versions", lambda names: {**library_versions(names), name: "99.0"}
        )
        _import(monkeypatch)

    return mutate
