"""Galaxy's Algorithm 1: shares in proportion to capacity, then moved from devices that memory is too small for.

    1-8    BalancedPartition       C_d = V_d / ΣV · units, of attention and of the MLP; memory is not looked at
    9-19   MemoryAwareBalancing    from each device over its budget, its excess to those with room, in proportion to V
    20-24  first the MLP, then attention; devices still over their budgets: fail

What the paper leaves open, and what stands here:

- `Waiting_Shift` (line 17) is not defined: the excess of the device in whole units of the block that is moved, no more
  than it has.
- Units are whole numbers (heads, columns) and shares of V are not: the largest remainders are rounded up.
- A device with room may be filled beyond its budget; only the recursion (line 19) sees that. It stays in the list then,
  and passes its own excess on to those that still have room.
- Eq. 5 asks for less than the budget; here a device may be full to the last byte.
- Line 18 removes a device that has given its excess from the list, so that it gets nothing back.
- "MLP first" may fail where "attention first" would fit; nothing is tried again.
- Eq. 5 has neither embeddings and head, nor caches, activations and buffers, nor links: the value of the shares, and
  whether they fit, is `evaluate_shared`'s to say.

O(devices³), as the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from partc.planner.groups.capacity import Kind, Layers

Shares = tuple[tuple[int, ...], ...]
"""Kind → units of each device."""


def apportion(amount: int, weights: Sequence[float]) -> list[int]:
    """`amount` units in proportion to the weights: rounded down, the largest remainders up; earlier ones first."""
    total = sum(weights)
    exact = [amount * weight / total for weight in weights]
    whole = [math.floor(part) for part in exact]
    order = sorted(range(len(whole)), key=lambda d: (whole[d] - exact[d], d))
    for d in order[: amount - sum(whole)]:
        whole[d] += 1
    return whole


def algorithm1(layers: Layers) -> Shares | None:
    """The shares of each kind, or None where the algorithm fails."""
    capacities = layers.capacities
    shares = [apportion(kind.units, capacities) for kind in layers.kinds]  # lines 1-8
    for number in reversed(range(len(shares))):  # lines 20-22: the MLP first
        everyone = list(range(len(layers.names)))
        _balance(layers, shares, number, everyone)
    if any(excess(layers, shares, d) > 0 for d in range(len(layers.names))):
        return None
    return tuple(map(tuple, shares))


def excess(layers: Layers, shares: Sequence[Sequence[int]], device: int) -> float:
    """Bytes by which a device is over its budget; negative where it has room."""
    pairs = zip(layers.kinds, shares, strict=True)
    return sum(kind.unit_bytes * mine[device] for kind, mine in pairs) - layers.budgets[device]


def _balance(layers: Layers, shares: list[list[int]], number: int, listed: list[int]) -> None:
    """Lines 9-19 for one kind, as a loop: what remains of the list after each round is that of the next."""
    capacities, kind = layers.capacities, layers.kinds[number]
    while True:
        over = [d for d in listed if excess(layers, shares, d) > 0]
        free = [d for d in listed if excess(layers, shares, d) < 0]
        if not over or not free:
            return
        waiting = {d: _waiting_shift(kind, shares[number][d], excess(layers, shares, d)) for d in over}
        for giver, units in waiting.items():
            for taker, part in zip(free, apportion(units, [capacities[d] for d in free]), strict=True):
                shares[number][giver] -= part
                shares[number][taker] += part
            listed.remove(giver)


def _waiting_shift(kind: Kind, held: int, excess_bytes: float) -> int:
    if not kind.unit_bytes:
        return 0
    return min(held, math.ceil(excess_bytes / kind.unit_bytes))
