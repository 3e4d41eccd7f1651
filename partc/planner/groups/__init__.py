"""Stages of several devices: Galaxy's hybrid of tensor and sequence parallelism, its cost, its planner.

| file | does |
| --- | --- |
| `lanes.py` | what each device and each link does, and when |
| `collectives.py` | gathers and sums among the devices of a stage, with products tile by tile (Eq. 7-11) or without |
| `units.py` | the stages that the same devices share, one after the other, and the values between them |
| `step.py`, `timeline.py` | one step of a phase, and its summary |
| `members.py` | the memory of every device |
| `evaluate.py` | the value of a plan |
| `capacity.py` | blocks, capacities and budgets as Algorithm 1 sees them |
| `algorithm1.py` | Algorithm 1: balanced shares, then shares that memory has room for |
| `eq5.py` | the best shares by Eq. 5, exactly |
| `make.py` | plans of given shares, each phase with the exchange that is priced lowest |
| `chains.py` | plans in which one stage after the other has one device or a group of them |
| `chain_bounds.py` | what no plan of a chain takes less than |
| `best_chain.py` | the strategy `optimal-groups`: the best chain, and the proof |
| `explain.py` | the explanation of a plan |

Sources: S. Ye et al., *Galaxy: a resource-efficient collaborative edge AI system for in-situ transformer inference*,
2024, sections III-B to III-D. Its own strategy and the baselines that it compares with are in
`partc.planner.baselines`.
"""

from __future__ import annotations
