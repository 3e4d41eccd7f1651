"""The graph that compile cut, with what the import notes of its values: which tensor of the original each of them is.

Passes keep the note with a value. A value that a pass made has none: its own node computes it from values that have
one (`provenance.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.planner.programs.exchanges import sum_name
from partc.verifier.provenance import compute, origins

if TYPE_CHECKING:
    from partc.ir.graph import Graph, Value

Array = npt.NDArray[Any]

_MOST_NODES = 64
"""Nodes between a value that a pass made and tensors of the original."""


class CutGraph:
    """The graph of a config, made again by the passes of its compile; from the cache of imports where it is there."""

    def __init__(self, config: ModelConfig, disable: tuple[str, ...] = ()) -> None:
        """`disable`: fusions that the compile left out."""
        self._config = config
        self._disable = disable

    def counterparts(
        self,
        names: Collection[str],
        known: Callable[[str], bool],
        tensors: Callable[[set[str]], Mapping[str, Array]],
    ) -> dict[str, Array]:
        """Name of a value → its content in the original, for those that can be told.

        Args:
            names: of values.
            known: whether there is a tensor of this origin.
            tensors: the tensors of these origins, as far as the original computes them.
        """
        wanted = {name: self.values[name] for name in names if name in self.values}
        found = compute(
            wanted, tensors(origins(wanted.values(), known, _MOST_NODES)), self._graph.opset, _MOST_NODES
        )
        return {name: array for name, array in found.items() if array is not None}

    @cached_property
    def values(self) -> dict[str, Value]:
        """Its values by name, and with them the sums that devices make of shares of a product: before its bias."""
        from partc.ir.graph import Value

        found = {value.name: value for value in self._graph.values()}
        products = [value for value in found.values() if value.producer is not None]
        sums = (Value(sum_name(each.name), origin=_before_bias(each)) for each in products)
        return {value.name: value for value in sums} | found

    @cached_property
    def _graph(self) -> Graph:
        from partc.frontend.cache import load_cached
        from partc.pipeline.contract import Context
        from partc.pipeline.default import default_pipeline
        from partc.pipeline.manager import run_passes

        module = load_cached(self._config)
        steps = default_pipeline(
            Path("devices.yaml"), "even", "eq1+frontier", Path("build"), ("simplify",), self._disable
        )
        run_passes(module, steps, Context())
        return module.graph


def _before_bias(product: Value) -> str | None:
    """The origin of a product before its bias, if it has one."""
    from partc.frontend.trace.statements import without_bias

    node = product.producer
    has_bias = node is not None and node.op == "Gemm" and len(node.inputs) > 2
    return without_bias(product.origin) if has_bias else product.origin
