"""A ring without processes or sockets: every device's executor in one process, messages handed over directly.

The runner's executor, engine and sampling are the real ones; only the wire is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from partc.format.dtypes import Array
from partc.format.role import Role, load_role
from partc.runtime.client.results import Crossing
from partc.runtime.core.liveness import Progress
from partc.runtime.engines.contract import load_engine
from partc.runtime.executor import Executor
from partc.runtime.jobs import Job, prompt_steps
from partc.runtime.wire import Opening, Step


class _Outlet:
    def __init__(self, ring: DirectRing, device: str) -> None:
        self.ring = ring
        self.device = device

    def send(self, peer: str, step: Step, names: Sequence[str], arrays: Sequence[Array]) -> int:
        values = {name: np.array(array) for name, array in zip(names, arrays, strict=True)}
        self.ring.executors[peer].deliver(self.device, step, values)
        return sum(array.nbytes for array in values.values())

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        self.ring.emitted[step.request] = {name: np.array(array) for name, array in values.items()}

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        copies = {name: np.array(array) for name, array in values.items()}
        self.ring.trace.setdefault(step.request, []).append(Crossing(self.device, peer, step.step, copies))


class DirectRing:
    """All devices of a build."""

    def __init__(self, build: Path, prompt_chunk: int | None = None) -> None:
        """`prompt_chunk` stands instead of the build's: tokens of a prompt that go through the ring at once."""
        self.build = build
        folders = {path.parent.name: path.parent for path in sorted(build.glob("devices/*/build.json"))}
        self.manifests: dict[str, Role] = {
            name: _in_chunks(load_role(folder), prompt_chunk) for name, folder in folders.items()
        }
        self.source = next(iter(self.manifests.values())).source
        self.emitted: dict[int, dict[str, Array]] = {}
        """Request → what its latest step emitted."""
        self.trace: dict[int, list[Crossing]] = {}
        """Request → what crossed links, and the logits."""
        self.executors: dict[str, Executor] = {}
        for name, manifest in self.manifests.items():
            engine = load_engine(manifest, folders[name])
            self.executors[name] = Executor(manifest, engine, _Outlet(self, name), time.monotonic)
        self.requests = 0

    def outputs(self, inputs: Mapping[str, Array], lengths: Sequence[int] = ()) -> dict[str, Array]:
        """The outputs of a model that does not generate; `lengths` are the valid tokens of each row."""
        self.requests += 1
        manifest = self.manifests[self.source]
        dims: dict[str, int] = {}
        for name, array in inputs.items():
            sizes = zip(manifest.inputs[name].shape, array.shape, strict=True)
            dims |= {dim: size for dim, size in sizes if isinstance(dim, str)}
        opening = Opening(sampling={}, trace=True)
        rows = (0,) * len(lengths)
        step = Step(
            self.requests, 0, 0, "prefill", dims, position=rows, length=tuple(lengths), opening=opening
        )
        self.executors[self.source].begin(step, inputs)
        self._settle()
        return self.emitted[step.request]

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """`count` greedy tokens for every prompt, in one batch."""
        return self.generate_together([prompts], count)[0]

    def generate_together(
        self, batches: Sequence[Sequence[Sequence[int]]], count: int
    ) -> list[list[list[int]]]:
        """`count` greedy tokens for every prompt of every batch; the batches are requests in flight at once."""
        requests = [_Request(self.requests + slot + 1, slot, batch) for slot, batch in enumerate(batches)]
        self.requests += len(requests)
        for _ in range(count):
            for request in requests:
                for step, inputs in request.steps(self.manifests[self.source]):
                    self.executors[self.source].begin(step, inputs)
            self._settle()
            for request in requests:
                request.advance(self.emitted[request.number]["token"])
        return [[list(row) for row in zip(*request.tokens, strict=True)] for request in requests]

    def _settle(self) -> None:
        while any(executor.ready for executor in self.executors.values()):
            for executor in self.executors.values():
                if executor.ready:
                    executor.advance()


class _Request:
    def __init__(self, number: int, slot: int, prompts: Sequence[Sequence[int]]) -> None:
        self.number = number
        lengths = [len(prompt) for prompt in prompts]
        self.ids: Array = np.zeros((len(prompts), max(lengths)), np.int64)
        for row, prompt in enumerate(prompts):
            self.ids[row, : len(prompt)] = prompt
        self.tokens: list[list[int]] = []
        self.last: Step | None = None
        self.job = Job(
            "", slot, Opening(sampling={}, trace=True), 0.0, Progress(0.0),
            inputs={"input_ids": self.ids}, dims={"batch": len(prompts), "sequence": self.ids.shape[1]},
            position=(0,) * len(prompts), length=tuple(lengths), number=number, slot=slot,
        )  # fmt: skip

    def steps(self, manifest: Role) -> Iterator[tuple[Step, Mapping[str, Array]]]:
        """The steps that lead to the next token: one, or the parts of a prompt."""
        if self.last is None:
            steps = list(prompt_steps(self.job, manifest))
        else:
            steps = [(self.last.next_token(), {"input_ids": self.ids})]
        self.last = steps[-1][0]
        yield from steps

    def advance(self, token: Array) -> None:
        self.tokens.append([int(item) for item in token])
        self.ids = np.array(token, np.int64)[:, None]


def _in_chunks(manifest: Role, size: int | None) -> Role:
    if size is None:
        return manifest
    return manifest.changed(model=replace(manifest.model, prompt_chunk=size))
