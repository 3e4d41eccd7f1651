"""Two lists of weights: those that changed, came, went, or have another name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from partc.bundle.tensors import open_tensors
from partc.differences.change import Change, changed_values
from partc.ir.graph import Module
from partc.ir.weights import leaves

_DIGITS = 16


def weight_record(module: Module) -> dict[str, str]:
    """Every tensor of the checkpoint that a graph reads → its type, shape and digest; one is in memory at a time."""
    read = open_tensors(module.info)
    used = (leaf for weight in module.graph.weights() if weight.source for leaf in leaves(weight.source))
    found = {}
    for leaf in dict.fromkeys(used):
        array = read(leaf)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:_DIGITS]
        found[leaf.key] = f"{array.dtype}{list(array.shape)} {digest}"
    return dict(sorted(found.items()))


def compare_weights(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """The changes between two checkpoints; O(weights).

    Args:
        before: name → type and digest of a weight.
        after: the same, now.
    """
    both = {name for name in before if name in after}
    yield from changed_values(
        "weights",
        "weight changed",
        {name: before[name] for name in before if name in both},
        {name: after[name] for name in before if name in both},
    )
    gone = {name: what for name, what in before.items() if name not in both}
    new = {name: what for name, what in after.items() if name not in both}
    for name, what in gone.items():
        other = next((known for known, found in new.items() if found == what), None)
        if other is None:
            yield Change("weights", "weight removed", name, what)
        else:
            del new[other]
            yield Change("weights", "weight renamed", name, name, other)
    for name, what in new.items():
        yield Change("weights", "weight added", name, None, what)
