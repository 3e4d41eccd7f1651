"""The explanation of a plan.

| file | content |
| --- | --- |
| `explanation.py` | its stages, the reasons for unused devices, the limit of its value |
| `what_if.py` | the gain of one change of devices or links |
| `remedies.py` | what to do where no plan fits |
| `summary.py` | rows for tables, the report and `--json` |
| `cannot.py` | what the ring of a plan cannot do, and why |
| `drafted.py` | what guessed tokens bring, and the plans that are best for more of them |
| `ranges.py` | stages in words |
"""

from __future__ import annotations
