"""One device of a ring.

```
values       values of a program: how long they are used
sampling     logits to tokens
timings      where the time of a step went
script       the programs of a device, and what can be known of them before any request
execution    one step of a request, on its way through its program
under_way    the steps of one request that are under way, in their order
request      one request on one device, through its states
requests     all requests of one device, and which of them goes on next
reports      messages that tell the source about a request
vitals       what a device tells of itself while somebody watches
copies       copies of other devices' rows
rows         rows of states as messages carry them
fetches      rows that this device fetches
offers       rows that others fetch from it
transfer     both, and the copies
preparation  the placement that a device prepares
early        questions for rows that come before the change that they belong to
journal      lines of the log, from what the parts decide
parts        all of these, and what concerns several
inbox        messages, taken to the part that they are for
device       events and actions; its docstring is the table state × event
```
"""
