"""The target that needs nothing: the text of the graph, which no device runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from partc.ir.graph import Graph, ModelInfo, Module, Part
from partc.ir.text import print_module
from partc.pipeline.contract import Artifact, Progress, Target


@dataclass(frozen=True)
class NullTarget(Target):
    """Writes the IR of a part as text."""

    name = "null"
    provider: str = "cpu"
    threads: int = 0

    def lower(self, graph: Graph, info: ModelInfo) -> Graph:
        """The graph as it is."""
        return graph

    def emit(self, part: Part, info: ModelInfo, folder: Path, progress: Progress) -> Artifact:
        """Write `<part>.partc`."""
        graph = part.graph
        file = folder / f"{graph.name}.partc"
        file.write_text(
            print_module(Module(replace(info, folder="."), graph)), encoding="utf-8", newline="\n"
        )
        submodule = {
            "name": graph.name,
            "file": file.name,
            "weights": [],
            "inputs": [value.name for value in graph.inputs],
            "outputs": list(dict.fromkeys(value.name for value in graph.outputs)),
            "states": [],
        }
        return Artifact([submodule], {"kind": "null", "provider": "none", "threads": 0, "options": {}}, {})
