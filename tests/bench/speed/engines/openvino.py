"""OpenVINO on a processor, with the graph of `openvino_file.py`.

Everything that is not said is its default: for quantised weights a cache of 8 bits and activations in 8 bits, and
bfloat16 where the processor has it. A float32 model is asked for in the accuracy that it has.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.speed.engines.contract import Engine, Stepping
from tests.bench.speed.openvino_file import MODEL
from tests.bench.speed.outputs import NEXT, Array, prompt


class _Stepper:
    grows = True

    def __init__(self, folder: Path, threads: int) -> None:
        library: Any = import_module("openvino")
        settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
        if folder.name == "float32":
            settings["EXECUTION_MODE_HINT"] = "ACCURACY"
        model = library.Core().compile_model(str(folder / MODEL), "CPU", settings)
        self._request = model.create_infer_request()
        self._filled = 0
        self._logits: Any = None

    def clear(self) -> None:
        self._request.reset_state()
        self._filled = 0

    def take(self, tokens: int) -> None:
        self.infer(np.array(prompt(tokens)))

    def step(self) -> None:
        self.infer(np.array([NEXT]))

    def back(self, context: int) -> None:
        raise NotImplementedError

    def logits(self) -> Array:
        return self._logits  # type: ignore[no-any-return]

    def infer(self, tokens: Array) -> None:
        """Take in those tokens."""
        positions = np.arange(self._filled, self._filled + len(tokens))
        inputs = [tokens[None], positions[None], np.zeros(1, np.int32)]
        self._filled += len(tokens)
        self._logits = self._request.infer(inputs, share_inputs=True, share_outputs=True)[0]


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(path, threads))
