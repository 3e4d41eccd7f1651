"""The uncut model of a quantised build: the same graph by the same passes for the same target, on one device.

transformers does not quantise as partc does, so it cannot say what the cut model must compute; this can. It is run
with the steps of the ring, since int8 products may quantise what a step holds as one: other steps round differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.format.build import Submodule, TensorType
from partc.format.dtypes import as_float32
from partc.format.role import Role, load_role
from partc.pipeline.contract import Context, Progress, no_progress
from partc.runtime.client.results import Crossing
from partc.runtime.core.inputs import check_tensors
from partc.runtime.engines.contract import load_engine

Array = npt.NDArray[Any]

DEVICE = "uncut"
"""The one device, which is the sender and the receiver of its values, too."""


def compile_uncut(
    config: ModelConfig,
    device: Mapping[str, Any],
    folder: Path,
    disable: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Path:
    """Compile the model for one device, with room for one request; the device's folder, inside of `folder`.

    Args:
        config: what was compiled, its batch a number.
        device: target, arch, provider, threads and options, as in devices.yaml.
        folder: an empty one.
        disable: fusions to leave out.
        progress: called during long work.

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
    run_passes(module, steps, Context(progress))
    return folder / "build" / "devices" / DEVICE


@dataclass
class Answer:
    """The result of the uncut model."""

    tokens: list[list[int]]
    """Tokens of each sequence."""
    crossings: list[Crossing] = field(default_factory=list)
    """The logits of every step, and the tapped values."""


class UncutModel:
    """A bundle of one device, run in this process."""

    def __init__(self, folder: Path, taps: Mapping[str, TensorType] | None = None) -> None:
        """Load it; `taps` are values inside of the graph that become outputs, as far as it has them."""
        role = load_role(folder)
        self.role = tap(role, folder, taps) if taps else role
        (self._module,) = self.role.submodules.values()
        self.output = self._module.outputs[0]
        """The logits, in a model that generates."""
        self._engine = load_engine(self.role, folder)

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
        return as_float32(made[self.output], self.role.types[self.output].dtype)[:, 0]

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
        # An engine may use the memory of its outputs again in the next step.
        return {name: np.array(array) for name, array in zip(self._module.outputs, made, strict=True)}

    @staticmethod
    def _note(answer: Answer, made: Mapping[str, Array]) -> None:
        answer.crossings.append(Crossing(DEVICE, DEVICE, len(answer.crossings), made))


def padded(prompts: Sequence[Sequence[int]], pad: int) -> Array:
    """[batch, longest], filled on the right."""
    ids = np.full((len(prompts), max(map(len, prompts))), pad, np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
    return ids


def tap(role: Role, folder: Path, taps: Mapping[str, TensorType]) -> Role:
    """The role of a copy of the graph that also returns those of `taps` that it computes; ONNX graphs only.

    The copy is written beside the graph, whose weights it refers to.
    """
    (module,) = role.submodules.values()
    if role.engine.kind != "ort":
        return role
    file, found = _write_tapped(folder, module, taps)
    more = msgspec.structs.replace(module, file=file, outputs=(*module.outputs, *found))
    values = {**role.values, **{name: taps[name] for name in found}}
    return role.changed(submodules=(more,), values=values)


def _write_tapped(folder: Path, module: Submodule, taps: Mapping[str, TensorType]) -> tuple[str, list[str]]:
    import onnx

    model = onnx.load(folder / module.file, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    found = sorted((taps.keys() & made) - set(module.outputs))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found)
    file = f"{module.name}.tapped.onnx"
    (folder / file).write_bytes(model.SerializeToString())
    return file, found
