"""The uncut model of a quantised build: the same graph by the same passes for the same target, on one device.

transformers does not quantise as partc does, so it cannot say what the cut model must compute; this can. It is run
with the steps of the ring, since int8 products may quantise what a step holds as one: other steps round differently.

Values that cross links of the ring lie inside of its graph. A twin of the graph, beside it in the bundle, returns them:
outputs in the middle may keep a target from fusing there, so the graph itself has none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.format.dims import symbols
from partc.format.dtypes import as_numbers
from partc.format.program import Program, Run
from partc.format.role import load_role
from partc.ir.graph import Graph, Part, Value
from partc.pipeline.contract import Context, Progress, no_progress
from partc.planner.model.pieces import part_name
from partc.runtime.client.results import Crossing
from partc.runtime.core.source.inputs import check_tensors
from partc.runtime.engines.contract import make_engine

Array = npt.NDArray[Any]

DEVICE = "uncut"
"""The one device, which is the sender and the receiver of its values, too."""
TWIN = "twin"
"""The sub-module that also returns values inside of the graph."""


def compile_uncut(
    config: ModelConfig,
    device: Mapping[str, Any],
    folder: Path,
    disable: Sequence[str] = (),
    progress: Progress = no_progress,
    inside: Collection[str] = (),
) -> Path:
    """Compile the model for one device, with room for one request; the device's folder, inside of `folder`.

    Args:
        config: what was compiled, its batch a number.
        device: target, arch, provider, threads and options, as in devices.yaml.
        folder: an empty one.
        disable: fusions to leave out.
        progress: called during long work.
        inside: values that the twin returns, as far as the graph makes them; none: there is no twin.

    Raises:
        UserError: the model does not compile any more.
    """
    from partc.frontend.cache import load_cached
    from partc.pipeline.default import default_pipeline
    from partc.pipeline.manager import run_passes

    devices = folder / "devices.yaml"
    figures = {"flops": "1 GFLOP/s", "memory_bandwidth": "1 GB/s", "memory": "1000000 GiB"}
    devices.write_text(json.dumps({"source": DEVICE, "devices": {DEVICE: {**figures, **device}}}))
    # Compile kept the import of this very config.
    module = load_cached(config, progress=progress)
    module.info = replace(module.info, max_requests=1)
    steps = default_pipeline(devices, "even", "eq1+frontier", folder / "build", disable=disable)
    split = [step.name for step in steps].index("split-graph") + 1
    run_passes(module, steps[:split], Context(progress))
    if inside and module.parts:
        _add_twin(module.parts[0], inside, batched=module.info.max_batch > 1)
    run_passes(module, steps[split:], Context(progress))
    return folder / "build" / "devices" / DEVICE


def _add_twin(part: Part, inside: Collection[str], *, batched: bool) -> None:
    """Let the programs of a part run a twin of its graph behind it.

    Values that have the rows of several sequences in one axis are left out: an entry for a batch cannot cut them out of
    what it fills up.
    """
    (graph,) = part.graphs
    made = [value for node in graph.nodes for value in node.outputs if value not in graph.outputs]
    found = [value for value in made if value.name in inside and not (batched and _is_flat(value))]
    outputs = [*graph.outputs, *found]
    part.graphs.append(Graph(TWIN, graph.inputs, outputs, graph.nodes, graph.opset))
    call = Run(TWIN, _names(graph.inputs), _names(outputs))
    part.programs = {phase: _with_twin(program, call) for phase, program in part.programs.items()}


def _is_flat(value: Value) -> bool:
    """Whether one axis has the rows of all sequences."""
    return any(symbols(dim) >= {"batch", "sequence"} for dim in value.shape or ())


def _with_twin(program: Program, call: Run) -> Program:
    at = next(number for number, item in enumerate(program, start=1) if isinstance(item, Run))
    return (*program[:at], call, *program[at:])


def _names(values: Sequence[Value]) -> tuple[str, ...]:
    return tuple(value.name for value in values)


@dataclass
class Answer:
    """The result of the uncut model."""

    tokens: list[list[int]]
    """Tokens of each sequence."""
    crossings: list[Crossing] = field(default_factory=list)
    """The outputs of every step."""


class UncutModel:
    """A bundle of one device, run in this process."""

    def __init__(self, folder: Path, name: str = part_name(0)) -> None:
        """Load the sub-module of that name: the graph or its twin."""
        self.role = load_role(folder)
        self._module = self.role.submodules[name]
        self.output = self._module.outputs[0]
        """The logits, in a model that generates."""
        self._engine = make_engine(self.role, folder)
        self._engine.load(name)

    def begin(self, batch: int) -> None:
        """A new request of `batch` sequences."""
        self._engine.reset(0, {"batch": batch, "sequence": 1})

    def step(self, ids: Array, position: Sequence[int], length: Sequence[int]) -> dict[str, Array]:
        """One step of all sequences: ids [batch, rows], and per sequence the tokens before and the valid new ones."""
        return self._run({"input_ids": ids}, position, length)

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """A request of one step, with the inputs that a ring takes."""
        given = dict(inputs)
        length = given.pop("length", None) if self.role.has_step_inputs else None
        dims = check_tensors(given, self.role)
        rows = [dims.get("sequence", 1)] * dims.get("batch", 1) if length is None else list(length)
        self._engine.reset(0, dims)
        return self._run(given, [0] * len(rows), rows)

    def generate(self, prompts: Sequence[Sequence[int]], chunks: Sequence[int], count: int) -> Answer:
        """`count` greedy tokens for every prompt, the first steps of the rows in `chunks`."""
        ids = padded(prompts, self.role.model.pad_token_id or 0)
        lengths = [len(prompt) for prompt in prompts]
        self.begin(len(prompts))
        answer, at = Answer([[] for _ in prompts]), 0
        for rows in chunks[:-1]:
            self._note(answer, self.step(ids[:, at : at + rows], [at] * len(prompts), [rows] * len(prompts)))
            at += rows
        made = self.step(ids[:, at:], [at] * len(prompts), [length - at for length in lengths])
        for number in range(count):
            if number:
                before = [length + number - 1 for length in lengths]
                made = self.step(np.array(answer.tokens)[:, -1:], before, [1] * len(prompts))
            self._note(answer, made)
            for row, token in zip(answer.tokens, np.argmax(self.logits(made), axis=-1), strict=True):
                row.append(int(token))
        return answer

    def logits(self, made: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        """[batch, vocabulary], of the last token of every sequence."""
        return made[self.output][:, 0].astype(np.float32)

    def _run(
        self, inputs: Mapping[str, Array], position: Sequence[int], length: Sequence[int]
    ) -> dict[str, Array]:
        dims = check_tensors(dict(inputs), self.role)
        steps = {
            "position": np.array(position, np.int64),
            "length": np.array(length, np.int64),
            "index": np.arange(dims.get("sequence", 1), dtype=np.int64),
        }
        values = {**steps, **inputs}
        made = self._engine.run(self._module.name, 0, [values[name] for name in self._module.inputs], dims)
        types = self.role.types
        # Copied: an engine may use the memory of its outputs again in the next step.
        return {
            name: np.array(as_numbers(array, types[name].dtype))
            for name, array in zip(self._module.outputs, made, strict=True)
        }

    @staticmethod
    def _note(answer: Answer, made: Mapping[str, Array]) -> None:
        answer.crossings.append(Crossing(DEVICE, DEVICE, len(answer.crossings), made))


def padded(prompts: Sequence[Sequence[int]], pad: int) -> Array:
    """[batch, longest], filled on the right."""
    ids = np.full((len(prompts), max(map(len, prompts))), pad, np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
    return ids
