"""A ring without processes or sockets: every device's executor in one process, messages handed over directly.

The runner's executor, engine and sampling are the real ones; only the wire is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from partc.runtime.dtypes import Array
from partc.runtime.engine import load_engine
from partc.runtime.executor import Executor
from partc.runtime.manifest import Manifest, load_manifest
from partc.runtime.wire import Opening, Step


class _Outlet:
    def __init__(self, ring: DirectRing, device: str) -> None:
        self.ring = ring
        self.device = device

    def send(self, peer: str, step: Step, names: Sequence[str], arrays: Sequence[Array]) -> int:
        values = {name: np.array(array) for name, array in zip(names, arrays, strict=True)}
        self.ring.crossed += [(self.device, peer, step.step, name, array) for name, array in values.items()]
        self.ring.executors[peer].deliver(self.device, step, values)
        return sum(array.nbytes for array in values.values())

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        self.ring.emitted = {name: np.array(array) for name, array in values.items()}

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        """Nothing: `send` has seen them."""


class DirectRing:
    """All devices of a build."""

    def __init__(self, build: Path) -> None:
        folders = {path.parent.name: path.parent for path in sorted(build.glob("devices/*/manifest.json"))}
        self.manifests: dict[str, Manifest] = {
            name: load_manifest(folder) for name, folder in folders.items()
        }
        self.source = next(iter(self.manifests.values())).source
        self.emitted: dict[str, Array] = {}
        self.crossed: list[tuple[str, str, int, str, Array]] = []
        self.executors: dict[str, Executor] = {}
        for name, manifest in self.manifests.items():
            engine = load_engine(manifest, folders[name])
            self.executors[name] = Executor(manifest, engine, _Outlet(self, name), time.monotonic)
        self.requests = 0

    def step(self, step: Step, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One step round the ring; what it emitted."""
        self.executors[self.source].begin(step, inputs)
        while any(executor.ready for executor in self.executors.values()):
            for executor in self.executors.values():
                if executor.ready:
                    executor.advance()
        return self.emitted

    def outputs(self, inputs: Mapping[str, Array], lengths: Sequence[int] = ()) -> dict[str, Array]:
        """The outputs of a model that does not generate; `lengths` are the valid tokens of each row."""
        self.requests += 1
        manifest = self.manifests[self.source]
        dims: dict[str, int] = {}
        for name, array in inputs.items():
            sizes = zip(manifest.inputs[name].shape, array.shape, strict=True)
            dims |= {dim: size for dim, size in sizes if isinstance(dim, str)}
        step = Step(
            request=self.requests,
            slot=0,
            step=0,
            phase="prefill",
            dims=dims,
            position=(0,) * len(lengths),
            length=tuple(lengths),
            opening=Opening(sampling={}),
        )
        return self.step(step, inputs)

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """`count` greedy tokens for every prompt, in one batch."""
        self.requests += 1
        lengths = [len(prompt) for prompt in prompts]
        padded = np.zeros((len(prompts), max(lengths)), np.int64)
        for row, prompt in enumerate(prompts):
            padded[row, : len(prompt)] = prompt
        position, tokens = [0] * len(prompts), []
        length, ids = lengths, padded
        for number in range(count):
            step = Step(
                request=self.requests,
                slot=self.requests % 2,
                step=number,
                phase="decode" if number else "prefill",
                dims={"batch": len(prompts), "sequence": ids.shape[1]},
                position=tuple(position),
                length=tuple(length),
                opening=None if number else Opening(sampling={}),
            )
            token = self.step(step, {"input_ids": ids})["token"]
            tokens.append([int(item) for item in token])
            position = [at + new for at, new in zip(position, length, strict=True)]
            length, ids = [1] * len(prompts), np.array(token, np.int64)[:, None]
        return [list(row) for row in zip(*tokens, strict=True)]
