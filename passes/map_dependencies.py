"""`map-dependencies`: what flows between sub-modules, to the next one (SDM) and further on (RDM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.ir.graph import DependencyMap, Graph, Module, Submodule
from partc.ir.homes import homes, maker_of
from partc.pipeline.contract import Context, Pass


@dataclass(frozen=True)
class MapDependencies(Pass):
    """Write down both dependency maps; the graph stays as it is."""

    name: ClassVar[str] = "map-dependencies"
    requires: ClassVar[str | None] = "formed"
    ensures: ClassVar[str | None] = "mapped"

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.sdm` and `module.rdm`."""
        before = module.sdm, module.rdm
        module.sdm, module.rdm = dependency_maps(module.graph, module.submodules or ())
        return before != (module.sdm, module.rdm)


def dependency_maps(graph: Graph, submodules: Sequence[Submodule]) -> tuple[DependencyMap, DependencyMap]:
    """SDM and RDM of LinguaLinked Eq. 3 and 4.

    An edge (u, v) with u in s_i and v in s_j, i < j, belongs to SDM(i, j) if i = j - 1 and else to RDM(i,
    j). The paper lists pairs of nodes; here an entry lists values, each once however many nodes of s_j read
    it, because a value is what is sent. Graph inputs are made in sub-module 0, where the source is; leaves,
    step inputs and what shared nodes make exist everywhere and are no entries. Values in the order in which
    they are made. O(V + E).
    """
    home = homes(submodules)
    sdm: DependencyMap = {}
    rdm: DependencyMap = {}
    readers = graph.consumers()
    for value in graph.values():
        made = maker_of(value, home)
        if made is None:
            continue
        for target in sorted({home[node] for node in readers.get(value, ()) if node in home} - {made}):
            entries = sdm if made == target - 1 else rdm
            entries.setdefault((made, target), []).append(value)
    return sdm, rdm
