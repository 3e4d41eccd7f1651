"""The HTML report that shows a plan and sets a recorded run (`partc.runs`) beside it.

```
sources.py     reads what a report is about: plan.json, build.json and placement.json, a run record
measured.py    what a record says of devices, links and steps, as the plan counts them
expected.py    what runners are to count where the plan is right
figures.py     figures of plan.json as text that remembers where it comes from
strip.py, memory.py, overlap.py, tables.py    the parts of the page as data
lanes.py       timelines: lanes and bars in per cent
timelines.py   what the lanes of the report show
page.py        the page: data → template → one self-contained HTML file
write.py       the file of the report: the whole page or nothing
```
"""
