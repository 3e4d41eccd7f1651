"""Everything with everything: what partc can do, combined, run and compared, or refused for a reason that is known.

| file | content |
| --- | --- |
| `axes.py` | what is combined: the axes, and their values |
| `rules.py` | what cannot be combined, and why: the one list of it |
| `covering.py` | cells that hold all pairs of values |
| `cells.py` | a cell: its model, its devices, its ring, its life |
| `document.py` | docs/combinations.md, written from the axes and the rules |
"""
