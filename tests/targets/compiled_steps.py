"""One graph of IR text, compiled for a target and run by its engine, beside the same graph in the numpy reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from partc.bundle.writer import write_bundle
from partc.config.devices import DevicesConfig
from partc.format.dims import evaluate
from partc.format.dtypes import Array
from partc.format.role import load_role
from partc.ir.evaluate import evaluate_node
from partc.ir.graph import Constant, Graph, Module, Node, State, Value, Weight
from partc.ir.operators import OPERATORS
from partc.ir.text import parse_module
from partc.ir.types import BY_SHORT
from partc.ir.weights import materialize
from partc.pipeline.registry import load_target
from partc.runtime.engines.contract import load_engine

MAX = 16
"""Rows of a cache."""


def module_of(lines: Sequence[str], folder: Path, target: str, batch: int, rows: int = MAX) -> Module:
    """A module with one part, which runs the graph of these lines, whose caches have so many rows."""
    dims = f'"dims": {{"batch": {batch}, "sequence": {rows}}}, "max_batch": {batch}, "max_sequence": {rows}'
    header = f'partc-ir 1\nmodel {{"name": "m", "task": "text-generation", "folder": "{folder}", {dims}}}\n'
    body = "{\n" + "\n".join(lines) + "\n}\n"
    inputs = ", ".join(line.split("%")[1].split(":")[0] for line in lines if line.startswith("input"))
    outputs = ", ".join(line.split("%")[1] for line in lines if line.startswith("output"))
    program = f"run part_0 ({inputs}) -> ({outputs})\nemit {outputs}\nend\n"
    part = f"part phone target {target} {{\nprogram prefill\n{program}graph part_0 opset 24 {body}}}\n"
    return parse_module(f"{header}graph m opset 24 {body}{part}")


class Compiled:
    """The graph as a target compiles it, with the options of `devices`."""

    def __init__(self, module: Module, folder: Path, devices: DevicesConfig | None = None) -> None:
        assert module.parts is not None
        for part in module.parts:
            options = devices.devices[part.device].target_options if devices else None
            part.graphs = load_target(part.target, options).lower(part.graphs, module.info)
        write_bundle(module, folder, devices)
        device = folder / "devices" / "phone"
        role = load_role(device)
        self._inputs = role.submodules["part_0"].inputs
        self._outputs = role.submodules["part_0"].outputs
        self._engine = load_engine(role, device)

    def reset(self, batch: int, rows: int = MAX) -> None:
        """Begin with empty states for so many sequences."""
        self._engine.reset(0, {"batch": batch, "sequence": rows})

    def run(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """One step."""
        found = self._engine.run("part_0", 0, [inputs[name] for name in self._inputs], dims)
        return dict(zip(self._outputs, map(np.array, found), strict=True))


class Reference:
    """The graph in numpy; it keeps the states, and what every value was in the last step."""

    def __init__(self, graph: Graph, folder: Path, dims: Mapping[str, int]) -> None:
        self.graph = graph
        path = folder / "m.safetensors"
        stored = load_file(path) if path.is_file() else {}
        self.values: dict[Value, Array] = {}
        self.read: dict[Node, list[Array | None]] = {}
        """The operands of every node in the last step."""
        for leaf in graph.leaves():
            match leaf:
                case Constant(array=array) if array is not None:
                    self.values[leaf] = array
                case Weight(source=source) if source is not None:
                    self.values[leaf] = materialize(source, lambda found: stored[found.key])
                case State(dtype=dtype, shape=shape) if dtype and shape:
                    self.values[leaf] = np.zeros([evaluate(d, dims) for d in shape], BY_SHORT[dtype].numpy)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One step."""
        self.values.update((value, inputs[value.name]) for value in self.graph.inputs)
        changed: dict[Value, Array] = {}
        for node in self.graph.nodes:
            self.read[node] = [None if value is None else self.values[value] for value in node.inputs]
            results = self.evaluate(node, self.read[node])
            self.values.update(zip(node.outputs, results, strict=True))
            if node.op in OPERATORS:
                changed |= {s: self.values[new] for s, new in OPERATORS[node.op].updates(node)}
        outputs = {value.name: self.values[value] for value in self.graph.outputs}
        self.values.update(changed)
        return outputs

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results of a node for these operands."""
        if node.op in OPERATORS:
            return OPERATORS[node.op].evaluate(node, operands)
        found = evaluate_node(node, operands, self.graph.opset)
        assert found is not None, node.op
        return found


def write_weights(folder: Path, weights: Mapping[str, Array]) -> None:
    """The checkpoint that weights of the graph refer to."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: np.ascontiguousarray(array) for name, array in weights.items()}, folder / "m.safetensors"
    )


def with_attributes(node: Node, attributes: Mapping[str, int | float]) -> Node:
    """The node with other attributes; its outputs stay those of the original."""
    twin = Node(node.op, list(node.inputs), [replace(output) for output in node.outputs])
    twin.attributes = {**node.attributes, **attributes}
    return twin
