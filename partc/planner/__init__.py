"""The planning problem, the value of a plan, and the strategies that find good ones.

| room | content |
| --- | --- |
| `model/` | the problem, the value of a plan, plan.json; pieces |
| `programs/` | the programs of devices, for stages of one device and of several |
| `exact/` | the strategy `optimal`: the best plan and its proof, with one interval per device and with returns |
| `groups/` | stages of several devices: their cost, and Galaxy's planner |
| `baselines/` | the strategies of the papers |
| `survive/` | copies and plans for the loss of a device |
| `explain/` | the explanation of a plan, what a change would gain, what to do where there is none, rows for tables |
| `solve.py` | the strategies by name; `solve`, which the rest of the compiler calls |
| `placed_by_user.py` | `place` of devices.yaml: the user's own plan, set beside the best |
| `rings/` | rings to form of many devices, for a demand |
| `simulate/` | discrete events over the programs that runners execute |

A plan itself, `Plan` and `PlanFile`, is defined in `partc.format.plan`; a `Stage` in `partc.format.placement`.
"""

from __future__ import annotations
