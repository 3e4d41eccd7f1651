"""Rings for a fleet of devices: which to form, so that as few devices as can be answer a demand.

| file | does |
| --- | --- |
| `kinds.py` | devices that are alike as one kind |
| `rings.py` | every kind of ring, planned by `partc.planner.exact`: what it answers, and how soon |
| `choose.py` | how many of each: an integer programme over kinds of rings |
| `solver.py` | HiGHS on that programme, in a process of its own |
| `traffic.py` | the rings chosen, simulated under requests that come at random |
| `make.py` | all of it: a demand and devices in, a fleet out |
"""
