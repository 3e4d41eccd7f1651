"""onnxruntime-genai with the model of its own builder."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.speed.engines.contract import Engine, Stepping
from tests.bench.speed.make import SEQUENCE
from tests.bench.speed.outputs import NEXT, Array, prompt


class _Stepper:
    grows = False

    def __init__(self, folder: Path, threads: int) -> None:
        library: Any = import_module("onnxruntime_genai")
        config = library.Config(str(folder))
        session = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        model = library.Model(config)
        settings = library.GeneratorParams(model)
        settings.set_search_options(max_length=SEQUENCE, do_sample=False)
        self._generator = library.Generator(model, settings)

    def clear(self) -> None:
        self._generator.rewind_to(0)

    def take(self, tokens: int) -> None:
        self._generator.append_tokens(np.array([prompt(tokens)], np.int32))

    def step(self) -> None:
        """Appending computes; the choice of a token from the logits, which is little, is left out."""
        self._generator.append_tokens(np.array([[NEXT]], np.int32))

    def logits(self) -> Array:
        return self._generator.get_logits()[0, -1]  # type: ignore[no-any-return]

    def back(self, context: int) -> None:
        self._generator.rewind_to(context)


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(path, threads))
