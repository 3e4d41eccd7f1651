"""The planning problem, what an assignment is worth, and the strategies that find good ones.

A plan comes to be in this order:

| file | does |
| --- | --- |
| `problem.py` | the planning problem and its JSON form |
| `roofline.py` | the seconds of each sub-module on each device: measured, or by a roofline |
| `layers.py`, `rules.py`, `placement.py` | what a user says of it: layers by number, `pin` and `ban`, `place` |
| `strategies.py` | the strategies by name; `solve`, which the rest of the compiler calls |
| `exact/`, `baselines/` | the best plan and its proof; the strategies of the papers |
| `effort.py` | how much work each search may do |
| `evaluate.py` | what an assignment is worth: every strategy is judged by it |
| `answer.py` | what a strategy answers: a plan with value, bound and gap, or what cannot be met |
| `infeasible.py`, `remedies.py`, `stale.py` | why there is no plan, in words, and what to do about it |
| `explain.py`, `what_if.py`, `words.py` | why the plan is as it is, and what a change would buy |
| `change.py` | changed problems: faster, fewer, other times |
| `file.py`, `summary.py` | plan.json, and what it says as rows |
| `file.py`, `summary.py` | plan.json, and its rows for tables |
| `change.py` | the problem with a faster link or device, or fewer of them |
| `simulate/` | discrete events over the programs that runners execute |
"""

from __future__ import annotations
