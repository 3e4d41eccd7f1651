"""The device as a state machine: `Device.on(event, now)` returns commands.

There are no sockets, clocks, files or engines here, so that rings of devices can be simulated, and traces of events
and commands (`golden/protocol`) hold for every implementation.

```
events       all that can happen to a device
commands     all that a device asks for
actions      all that one part of the core tells another
step         one step of a request, and how it is held against the placement
liveness     patience with what is under way
meter        times of what is done again and again, while somebody watches
tokens       token ids held against the vocabulary
start        facts about a process that the build does not know
links/       connections: who is at the other end, what may travel, whether the ring stands
source/      what the source has besides: clients' requests, changes of placement, the status of the ring
device/      one device: its requests, its rows, the placement that it prepares; `Device` composes all
```

A room imports what stands above it.
"""
