"""The best plan, and the proof that it is.

| file | does |
| --- | --- |
| `optimal.py` | the strategy `optimal`: one interval per device, and plans that return |
| `drafted.py` | the best plan where some tokens are guessed |
| `results.py` | the best plan where sub-modules before the last one make results |
| `returns/` | plans that may return to a device |
| `intervals.py` | the best plan with one interval per device: which search is tried, and which stands behind it |
| `tables.py` | the problem as arrays; devices that are alike as one type |
| `objective.py` | what is minimised: latency, bottleneck, or devices for a bottleneck |
| `bound.py` | few types: a dynamic programme over sets of devices, a bound for every state |
| `search.py` | branch and bound on exact prefixes, guided by a bound |
| `large.py` | many unlike devices: plans by local search, bounds by prices |
| `chain.py`, `windows.py` | for it: the problem without residual messages; least elements of stretches |
| `orders.py`, `cover.py` | for it: orders of devices for a latency, and for a throughput |
| `multipliers.py` | for it: Lagrangian bounds |
| `greedy.py` | a plan when all else has failed |
| `solution.py` | what they hand over: a solution, and whether it is proven |
"""

from __future__ import annotations
