"""The tasks of a profile: one for each distinct sub-module and phase, kept in work.json beside the bundle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.format.json_text import read_json
from partc.ir.digests import submodule_digest
from partc.ir.graph import Graph, Module
from partc.ir.workload import Step, settings, workload
from partc.profiler.graphs import ProbeSizes, graph_name, model_bytes, submodules_graph, weight_bytes

FORMAT = "partc-profile-work/1"
WORK_FILE = "work.json"


@dataclass(frozen=True)
class Task:
    """One sub-module to be timed in one phase."""

    digest: str
    phase: str
    submodules: tuple[int, ...]
    """All sub-modules with the digest; the first is the one that is measured."""
    dims: Mapping[str, int]
    position: tuple[int, ...]
    """(batch,) tokens in the caches before the step."""
    length: tuple[int, ...]
    sample: str
    """The logits that are sampled on the device that has them; empty: none."""
    bytes: int
    """Weights of the sub-module."""

    @property
    def graph(self) -> str:
        """The name of the graph that is measured."""
        return graph_name(self.submodules[0], 1)


@dataclass(frozen=True)
class Chain:
    """A pattern of sub-modules that repeats, such as the two halves of a layer."""

    first: int
    """The sub-module that it begins with."""
    period: int
    """Sub-modules of the pattern."""
    count: int
    """Repeats of the pattern in one graph; at least 2."""

    def members(self, count: int) -> range:
        """The sub-modules of so many patterns."""
        return range(self.first, self.first + count * self.period)

    def graph(self, count: int) -> str:
        """The name of the graph of so many patterns."""
        return graph_name(self.first, count * self.period)


@dataclass(frozen=True)
class Work:
    """Everything that is to be measured."""

    devices: tuple[str, ...]
    sizes: ProbeSizes
    tasks: tuple[Task, ...] = ()
    model: str | None = None
    """Name of the model; None: devices and links alone."""
    submodules: int = 0
    """The number of sub-modules of the model."""
    model_bytes: int = 0
    """Weights that a step of the whole model reads."""
    chain: Chain | None = None
    """None: no pattern repeats, or a device cannot hold two of them."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """Sizes and workload of model.yaml (`partc.ir.workload.settings`)."""

    def bytes_of(self, members: Iterable[int]) -> int:
        """Weights of some sub-modules."""
        own = {index: task.bytes for task in self.tasks for index in task.submodules}
        return sum(own[index] for index in members)

    def touch_bytes(self, members: Iterable[int], most: int) -> int:
        """Memory to read between two repeats: the rest of the model."""
        return min(most, max(0, self.model_bytes - self.bytes_of(members)))


MOST_PATTERNS = 6
"""Patterns that are measured in one graph at most."""
MOST_TOGETHER_BYTES = 256 << 20
"""Their weights at most; a device must hold them."""


def work_of(
    module: Module, devices: Sequence[str], sizes: ProbeSizes, memory_bytes: float = MOST_TOGETHER_BYTES
) -> tuple[Work, list[Graph]]:
    """The work that a model asks for, and the graphs of its distinct sub-modules; O(V + E).

    Args:
        module: cut into sub-modules.
        devices: names of all devices.
        sizes: of the test models.
        memory_bytes: what every device can hold at a time.
    """
    submodules = module.submodules or []
    graphs: dict[str, Graph] = {}

    def add(members: Sequence[int]) -> Graph:
        name = graph_name(members[0], len(members))
        if name not in graphs:
            graphs[name] = submodules_graph(module, members)
        return graphs[name]

    tasks: list[Task] = []
    digests: list[str] = []
    for step in workload(module.info):
        digests = [submodule_digest(submodule.nodes, step) for submodule in submodules]
        for digest in dict.fromkeys(digests):
            alike = [index for index, other in enumerate(digests) if other == digest]
            tasks.append(_task(module, add(alike[:1]), alike, step, digest))
    total = model_bytes(submodules)
    share = total // max(1, len(devices)) // (sizes.columns * 4)
    touched = replace(sizes, touch_rows=max(1, min(sizes.rows, share)))
    work = Work(tuple(devices), touched, tuple(tasks), module.info.name, len(submodules), total)
    chain = _chain(work, digests, min(memory_bytes, MOST_TOGETHER_BYTES))
    if chain is not None:
        add(chain.members(1))
        add(chain.members(chain.count))
    return replace(work, chain=chain, settings=settings(module.info)), list(graphs.values())


def longest_pattern(digests: Sequence[str]) -> tuple[int, int, int]:
    """(first, period, how often) of the pattern that repeats over most sub-modules, the shorter of equals.

    O(n²) comparisons for n sub-modules.
    """
    best = (0, max(1, len(digests)), 1)
    for period in range(1, len(digests) // 2 + 1):
        run = 0
        for place in range(len(digests) - period):
            run = run + 1 if digests[place] == digests[place + period] else 0
            count = run // period + 1
            if count > 1 and count * period > (best[1] * best[2] if best[2] > 1 else 0):
                best = (place - run + 1, period, count)
    return best


def _chain(work: Work, digests: Sequence[str], memory_bytes: float) -> Chain | None:
    first, period, found = longest_pattern(digests)
    each = work.bytes_of(range(first, first + period)) if digests else 0
    count = min(found, MOST_PATTERNS, int(memory_bytes // max(1, each)))
    return Chain(first, period, count) if count > 1 else None


def _task(module: Module, graph: Graph, indices: Sequence[int], step: Step, digest: str) -> Task:
    batch, new = step.sizes.get("batch", 1), step.sizes.get("sequence", 1)
    logits = module.graph.outputs[0].name if module.info.has_states else ""
    return Task(
        digest=digest,
        phase=step.name,
        submodules=tuple(indices),
        dims=dict(step.sizes),
        position=(max(0, step.context - new),) * batch,
        length=(new,) * batch,
        sample=logits if any(value.name == logits for value in graph.outputs) else "",
        bytes=weight_bytes(graph),
    )


def save_work(work: Work, folder: Path) -> None:
    """Write work.json."""
    data = {"format": FORMAT, **asdict(work)}
    (folder / WORK_FILE).write_text(f"{json.dumps(data, indent=1)}\n", encoding="utf-8")


def load_work(folder: Path) -> Work:
    """Read work.json.

    Raises:
        BundleError: the folder was not made by `partc profile`.
    """
    path = folder / WORK_FILE
    hint = (
        "make it: partc profile MODEL --target DEVICES --prepare -o DIR, and copy its folders to the devices"
    )
    data = read_json(path, BundleError, hint, missing="not prepared for profiling")
    try:
        if data.pop("format") != FORMAT:
            raise ValueError("made by another version of partc")
        return _read(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"cannot be read: {error}", where=str(path), hint=hint) from None


def _read(data: dict[str, Any]) -> Work:
    tuples = ("submodules", "position", "length")
    tasks = [{**task, **{key: tuple(task[key]) for key in tuples}} for task in data["tasks"]]
    return Work(**{
        **data,
        "devices": tuple(data["devices"]),
        "sizes": ProbeSizes(**data["sizes"]),
        "tasks": tuple(Task(**task) for task in tasks),
        "chain": Chain(**data["chain"]) if data["chain"] else None,
    })  # fmt: skip
