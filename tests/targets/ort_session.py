"""Runs one emitted part in onnxruntime, the way an engine does: states bound to one buffer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partc.ir.graph import Part
from partc.ir.text import parse_module
from partc.pipeline.contract import no_progress
from targets.ort import OrtTarget
from tests.targets.numpy_attention import Array


class Session:
    """A part that is compiled, loaded and has its states in memory."""

    def __init__(self, text: str, folder: Path, target: OrtTarget = OrtTarget()) -> None:  # noqa: B008  # frozen
        import onnxruntime

        module = parse_module(text)
        folder.mkdir(exist_ok=True)
        (self.graph,) = target.lower([module.graph], module.info)
        self.artifact = target.emit(Part("phone", [self.graph], {}), module.info, folder, no_progress)
        self.entry = self.artifact.submodules[0]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        path = str(folder / self.entry.file)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.make = onnxruntime.OrtValue.ortvalue_from_numpy
        self.states: dict[str, object] = {}

    def set_state(self, name: str, array: Array) -> None:
        """Put `array` into the buffer of a state."""
        self.states[name] = self.make(array.copy())

    def state(self, name: str) -> Array:
        """What the buffer of a state holds."""
        return self.states[name].numpy()  # type: ignore[attr-defined, no-any-return]

    def run(self, **inputs: Array) -> dict[str, Array]:
        """One step."""
        binding = self.session.io_binding()
        for name in self.entry.inputs:
            binding.bind_cpu_input(name, np.ascontiguousarray(inputs[name]))
        for entry in self.entry.states:
            binding.bind_ortvalue_input(entry.input, self.states[entry.name])
            binding.bind_ortvalue_output(entry.output, self.states[entry.name])
        for name in self.entry.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        made = dict(
            zip(
                [*(e.output for e in self.entry.states), *self.entry.outputs],
                binding.get_outputs(),
                strict=True,
            )
        )
        return {name: made[name].numpy() for name in self.entry.outputs}

    def operators(self) -> list[str]:
        """The operators of the lowered graph, in order."""
        return [node.op for node in self.graph.nodes]
