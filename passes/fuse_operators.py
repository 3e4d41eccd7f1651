"""`fuse-operators`: several exported nodes become the one standard ONNX operator that they spell out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar

from partc.errors import UserError
from partc.ir.edit import drop_dead
from partc.ir.graph import Graph, Module
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from passes.fusions.gelu import fuse_gelu
from passes.fusions.layer_normalization import fuse_layer_normalization
from passes.fusions.rms_normalization import fuse_rms_normalization
from passes.fusions.rotary_embedding import fuse_rotary_embedding
from passes.fusions.swish import fuse_swish

FUSIONS: dict[str, tuple[int, Callable[[Graph], int]]] = {
    "layer-normalization": (
        17,
        fuse_layer_normalization,
    ),  # first: behind a Sub of the mean it looks like the next
    "rms-normalization": (23, fuse_rms_normalization),
    "rotary-embedding": (23, fuse_rotary_embedding),
    "gelu": (20, fuse_gelu),
    "swish": (24, fuse_swish),
}
"""Name → first opset that has the operator, and the function that produces it, in the order of trial."""


@dataclass(frozen=True)
class FuseOperators(Pass):
    """Apply the table `FUSIONS`; a pattern fuses only where nobody else reads its intermediate values."""

    name: ClassVar[str] = "fuse-operators"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "sized"

    disable: str = Default("")
    """Names of fusions to leave out, separated by semicolons."""

    @classmethod
    def fusions(cls) -> tuple[str, ...]:
        """See `Pass`."""
        return tuple(FUSIONS)

    def apply(self, module: Module, context: Context) -> bool:
        """Fuse what the graph's opset has operators for.

        Raises:
            UserError: `disable` names a fusion that does not exist.
        """
        return fuse_operators(module.graph, _names(self.disable))


def _names(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(";") if name.strip())
    for name in sorted(names - FUSIONS.keys()):
        raise UserError(
            f"there is no fusion {name!r}",
            where="fuse-operators{disable}",
            hint=f"fusions: {', '.join(FUSIONS)}",
        )
    return names


def fuse_operators(graph: Graph, disable: Collection[str] = ()) -> bool:
    """Fuse in place; True if anything was; O(nodes) a fusion."""
    fused = 0
    for name, (opset, fuse) in FUSIONS.items():
        if name not in disable and graph.opset >= opset:
            fused += fuse(graph)
            drop_dead(graph)
    return fused > 0
