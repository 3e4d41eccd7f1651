"""One device of a ring.

```
values       values of a program: how long they are used
sampling     logits to tokens
timings      where the time of a step went
request      one request on one device, through its states
requests     all requests of one device, and which of them goes on next
reports      messages that tell the source about a request
vitals       what a device tells of itself while somebody watches
copies       copies of other devices' rows
transfer     rows of states on their way to another device
preparation  the placement that a device prepares
early        questions for rows that come before the change that they belong to
journal      lines of the log, from what the parts decide
device       composes them; its docstring is the table state × event
```
"""
