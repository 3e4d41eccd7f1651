"""The parts of devices: from the pieces of a plan to graphs and to the work that programs are made of.

| file | does |
| --- | --- |
| `sections.py` | cuts pieces into sections, one graph a device; divides blocks where devices share them |
| `drawing.py` | draws the graphs |
| `work.py` | the work of the devices of a placement, unit by unit |

`passes.split_graph` goes through them.
"""

from __future__ import annotations
