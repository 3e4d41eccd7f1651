"""The planning problem, the value of a plan, and what is decided before and behind any strategy.

The files in the order in which a plan comes to be:

| file | content |
| --- | --- |
| `problem.py`, `edges.py` | the problem, and the edges of a model |
| `problem_json.py`, `block_json.py`, `drafts_json.py` | its JSON form |
| `draft_prices.py` | what a model and its devices make of guesses |
| `objectives.py` | what plans are compared by, and all that differs between the objectives |
| `change.py` | the problem with a faster link or device, or fewer of them |
| `roofline.py`, `stale.py` | the seconds of each sub-module on each device; advice on measurements that do not fit |
| `layers.py`, `rules.py` | the user's wishes: layers by number, `pin`, `ban` and `keep` |
| `unsupported.py` | sub-modules that a device's target has no code for |
| `effort.py` | the work that each search may do |
| `drafted.py` | the time of a token where some are guessed |
| `evaluate.py` | the value of a plan: every strategy is judged by it |
| `infeasible.py` | the reason why there is no plan |
| `objective_values.py` | values as people read them |
| `stages.py` | messages between stages |
| `pieces.py` | what no placement of a build cuts, and its names |
| `movable.py` | borders and copies for moves |
| `plan_file.py`, `check.py` | plan.json: reading and checks |
| `patience_figures.py`, `device_times.py` | figures that a placement carries; its times for any placement |
"""

from __future__ import annotations
