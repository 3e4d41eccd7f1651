"""Code for GPUs: the same plan as for processors, with launches in place of calls, and no device at hand.

| file | does |
| --- | --- |
| `fuse.py` | nodes joined with their neighbours: a launch costs microseconds |
| `kernels/` | what is worth more than TVM's own schedules: products, attention, recurrences, look-ups |
| `schedule.py` | kernels without loops of their own divided among blocks and threads |
| `launches.py` | kernels split into host and device; of the host nothing remains but the sizes of launches |
| `languages.py` | what the device takes: OpenCL C, or machine code of one NVIDIA architecture |
| `link.py` | all of these: a Relax module to the code and its plan |

TVM's package writes the source of either language without any driver of a GPU. The device needs its maker's driver and
nothing else: neither TVM nor Python.
"""
