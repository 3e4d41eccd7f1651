"""The planning problem, the value of a plan, and the strategies that find good ones.

The files in the order in which a plan comes to be:

| file | content |
| --- | --- |
| `problem.py`, `problem_json.py`, `block_json.py`, `edges.py` | the problem, its JSON form, the edges of a model |
| `objectives.py` | what plans are compared by, and all that differs between the objectives |
| `change.py` | the problem with a faster link or device, or fewer of them |
| `roofline.py`, `stale.py` | the seconds of each sub-module on each device; advice on measurements that do not fit |
| `layers.py`, `rules.py`, `placement.py` | the user's wishes: layers by number, `pin` and `ban`, `place` |
| `unsupported.py` | sub-modules that a device's target has no code for |
| `strategies.py` | the strategies by name; `solve`, which the rest of the compiler calls |
| `optimal.py`, `exact/`, `returns/` | the best plan and its proof: with one interval per device, and of all |
| `baselines/` | the strategies of the papers |
| `shared/` | stages of several devices: their cost, and Galaxy's planner |
| `effort.py` | the work that each search may do |
| `evaluate.py` | the value of a plan: every strategy is judged by it |
| `figures.py`, `device_times.py` | the figures of a plan that a placement carries; its times for any placement |
| `stages.py`, `programs.py` | messages between stages; the programs of all devices, and of a placement of pieces |
| `infeasible.py`, `remedies.py` | the reason why there is no plan, and what to do about it |
| `explain.py`, `what_if.py`, `values.py` | the explanation of a plan, the gain of changes, values as people read them |
| `file.py`, `check.py`, `summary.py` | plan.json: reading, checks, and its rows for tables |
| `cannot.py` | what the ring of a plan cannot do, and why |
| `survive/`, `movable.py` | copies and plans for the loss of a device; copies and borders for moves |
| `fleet/` | rings to form of many devices, for a demand |
| `simulate/` | discrete events over the programs that runners execute |

A plan itself, `Plan` and `PlanFile`, is defined in `partc.ir.plan`; a `Stage` in `partc.format.placement`.
"""

from __future__ import annotations
