"""Programs: what every device does in a step, instruction by instruction, for stages of one device and of several.

| file | does |
| --- | --- |
| `work.py` | the work of devices, unit by unit: what programs are made of |
| `exchanges.py` | gathers and sums, written out as instructions |
| `unit.py` | the programs of one unit |
| `step.py` | the programs of a step |
| `request.py` | the programs of a first step and of later ones; of a placement of pieces |

It is the one place where programs are written: `split-graph` calls it with the graphs of a model, a move of sub-modules
with those of a build, the simulator with the values of a planning problem. `partc.planner.model` and
`partc.planner.groups` price what is written here.
"""

from __future__ import annotations
