"""What changed between two graphs, plans or builds, in the terms of the model.

| file | content |
| --- | --- |
| `change.py` | one change: what, where, before, after, and whose doing it is |
| `matching.py` | the nodes of one graph that are those of another, by structure |
| `graphs.py` | operators added, removed, rewritten; sizes, types, weights, constants |
| `plans.py` | devices, cuts, messages, memory, times; and the short form of a plan that is compared |
| `builds.py` | files of a build; and the table of them that is compared |
| `weights.py` | weights that changed, came, went, or have another name |
| `mappings.py` | nested settings, key by key |
| `things.py` | what a path names: a build, a plan, a graph |
"""
