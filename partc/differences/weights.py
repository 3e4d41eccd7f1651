"""Two lists of weights: those that changed, came, went, or have another name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partc.differences.change import Change, changed_values


def compare_weights(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """What changed between two checkpoints; O(weights).

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
