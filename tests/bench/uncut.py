"""A bundle of one device, loaded into this process through the runner's own engine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from partc.format.role import load_role
from partc.runtime.core.source.inputs import prompt_ends
from partc.runtime.engines.contract import load_engine
from tests.bench.speed.outputs import prompt


class Uncut:
    """A decoder in one piece; one step of it at a time, without a ring."""

    def __init__(self, bundle: Path, device: str, threads: int = 1) -> None:
        place = bundle / "devices" / device
        role = load_role(place)
        role = role.changed(engine=replace(role.engine, threads=threads))
        self.model = role.model
        (self._module,) = role.submodules.values()
        self._engine = load_engine(role, place)
        self._tokens = np.array([prompt(self.model.max_sequence)])
        self._sequence = role.dims["sequence"]
        self.clear()

    def clear(self) -> None:
        """Forget all tokens."""
        self._engine.reset(0, {"batch": 1, "sequence": self._sequence})

    def prefill(self, tokens: int, position: int = 0) -> np.ndarray[Any, Any]:
        """The last logits of `tokens` behind `position` others, taken in the steps that the runner takes them in."""
        begin = position
        for rows in self.parts(tokens):
            logits = self.step(rows, begin)
            begin += rows
        return logits

    def parts(self, tokens: int) -> list[int]:
        """The rows of the steps of a prompt."""
        return [end - start for start, end in pairwise((0, *prompt_ends(tokens, 1, self.model)))]

    def step(self, rows: int, position: int) -> np.ndarray[Any, Any]:
        """The last logits of `rows` tokens behind `position` others."""
        brought = {
            "input_ids": self._tokens[:, position : position + rows], "position": np.array([position]),
            "length": np.array([rows]), "index": np.arange(rows),
        }  # fmt: skip
        inputs = [brought[name] for name in self._module.inputs]
        return self._engine.run(self._module.name, 0, inputs, {"batch": 1, "sequence": rows})[0]
