"""The device as a state machine: `Device.on(event, now)` returns commands.

There are no sockets, clocks, files or engines here, so that rings of devices can be simulated, and traces of events
and commands (`golden/protocol`) hold for every implementation.

```
events       all that can happen to a device
commands     all that a device asks for
actions      all that one part of the core tells another
values       values of a program: how long they are used
step         one step of a request, and how it is held against the placement
inputs       what clients ask for, checked against the model; prompts in parts
sampling     logits to tokens
timings      where the time of a step went
headers      headers of `data`, held against the placement
link         sequence numbers, acknowledgements, sessions, epochs
windows      frames that may be unacknowledged on a link
links        the handshake and the links of one device
membership   whether the ring stands: loading, joining, complete, degraded
request      one request on one device, through its states
requests     all requests of one device, and which of them goes on next
liveness     patience with what is under way
patience     how long a step may take, and who is to blame
orphans      requests whose client is away
reports      messages that tell the source about a request
answers      messages of the source to a client about its request
job          one request at the source
schedule     all requests at the source
sharing      steps that requests share at the source
slots        slots of states, and the prompts whose rows they still have
changes      the placement in force and the next one, at the source
source       composes what the source has besides
transfer     rows of states on their way to another device
copies       copies of other devices' rows
preparation  the placement that a device prepares
early        questions for rows that come before the change that they belong to
rights       whether the sender of a message may send it
watch, monitor    what a device tells of itself while somebody watches; the status of the ring at the source
journal      lines of the log, from what the parts decide
start        facts about a process that the build does not know
device       composes them; its docstring is the table state × event
```
"""
