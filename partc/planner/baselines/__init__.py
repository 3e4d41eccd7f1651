"""The strategies of the papers, for comparison and for users who ask for them.

| file | does |
| --- | --- |
| `even.py` | equal numbers of sub-modules for all devices |
| `edgeshard_latency.py`, `edgeshard_throughput.py` | EdgeShard's Algorithms 1 and 2 |
| `traces.py` | the problem as EdgeShard sees it |
| `lingualinked.py` | LinguaLinked's Eq. 5 over all assignments |
| `assignment_programme.py` | Eq. 5 as a mixed-integer programme |
| `assignment_solver.py`, `solver_process.py` | HiGHS on it, in a process of its own |
| `galaxy.py` | Galaxy's Algorithm 1, with tiles |
| `megatron.py`, `sequence_parallel.py` | its baselines: equal tensor parallelism, equal rows |
| `valued.py` | plans at their true value, with the bound of the best plan |
"""

from __future__ import annotations
