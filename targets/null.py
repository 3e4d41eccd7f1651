"""The target that needs nothing: the text of the graph, which no device runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partc.format.build import EngineSpec, Submodule
from partc.ir.graph import Graph, ModelInfo, Module, Part
from partc.ir.text import print_module
from partc.pipeline.contract import NO_STORE, Artifact, Progress, Target, TensorStore


@dataclass(frozen=True)
class NullTarget(Target):
    """Writes the IR of a part as text."""

    name = "null"
    provider: str = "cpu"
    threads: int = 0

    def lower(self, graphs: Sequence[Graph], info: ModelInfo) -> list[Graph]:
        """The graphs as they are."""
        return list(graphs)

    def emit(
        self, part: Part, info: ModelInfo, folder: Path, progress: Progress, store: TensorStore = NO_STORE
    ) -> Artifact:
        """Write `<graph>.partc` for every graph."""
        submodules = tuple(_write(graph, info, folder) for graph in part.graphs)
        return Artifact(submodules, EngineSpec("null", "none"), {})


def _write(graph: Graph, info: ModelInfo, folder: Path) -> Submodule:
    file = folder / f"{graph.name}.partc"
    text = print_module(Module(replace(info, folder="."), graph))
    file.write_text(text, encoding="utf-8", newline="\n")
    return Submodule(
        name=graph.name,
        file=file.name,
        weights=(),
        inputs=tuple(value.name for value in graph.inputs),
        outputs=tuple(dict.fromkeys(value.name for value in graph.outputs)),
    )
