"""A build of one device, computed step by step through its engine: the same inputs for every engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.format.prompt_steps import steps_of, useful
from partc.format.role import Role, load_role
from partc.runtime.engines.contract import Engine, load_engine


class Steps:
    """The one sub-module of a decoder."""

    def __init__(self, build: Path) -> None:
        """`build`: the folder that `partc compile` wrote."""
        (self.folder,) = (build / "devices").iterdir()
        self.role: Role = load_role(self.folder)
        self.engine: Engine = load_engine(self.role, self.folder)
        (self.name,) = self.role.running
        self._module = self.role.submodules[self.name]
        self._sizes = useful(self.role.model.prompt_steps)

    def request(self, prompt: Sequence[int], tokens: int) -> Iterator[tuple[int, Array, float]]:
        """Greedy tokens: each with its logits [vocabulary] and the seconds of its step.

        The prompt goes in the steps that a runner would take.
        """
        self.engine.reset(0, {"batch": 1, "sequence": len(prompt)})
        rows, position = list(prompt), 0
        for _ in range(tokens):
            start = time.perf_counter()
            logits = self._rows(rows, position)
            taken = time.perf_counter() - start
            position += len(rows)
            token = int(np.argmax(logits))
            yield token, logits, taken
            rows = [token]

    def prompt_s(self, prompt: Sequence[int]) -> float:
        """Seconds from the first row of a prompt to its first token."""
        self.engine.reset(0, {"batch": 1, "sequence": len(prompt)})
        start = time.perf_counter()
        self._rows(prompt, 0)
        return time.perf_counter() - start

    def _rows(self, ids: Sequence[int], position: int) -> Array:
        """The logits of the last of these rows."""
        begin = 0
        for width in steps_of(len(ids), self._sizes):
            logits = self._step(ids[begin : begin + width], position + begin)
            begin += width
        return logits

    def _step(self, ids: Sequence[int], position: int) -> Array:
        dims = {"batch": 1, "sequence": len(ids)}
        given = {"position": [position], "length": [len(ids)], "index": list(range(len(ids)))}
        inputs = []
        for name in self._module.inputs:
            kind = self.role.types[name]
            found = np.array(given.get(name, [ids]), DTYPES[kind.dtype])
            inputs.append(found.reshape(kind.sizes({**self.role.dims, **dims})))
        (logits,) = self.engine.run(self.name, 0, inputs, dims)
        last: Array = logits.reshape(-1, logits.shape[-1])[-1]
        if self.role.types[self._module.outputs[0]].dtype == "bfloat16":  # numpy has its bits
            return (last.astype(np.uint32) << 16).view(np.float32)
        return last.astype(np.float32)
