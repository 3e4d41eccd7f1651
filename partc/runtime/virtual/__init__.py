"""Rings of devices in virtual time: the cores of `partc.runtime.core`, without processes, sockets or waiting.

```
clock      what happens at which time
network    connections with delays, breaks, repetitions and disorder
node       the process of a device: its core, its engine, and the time that computing takes
client     a client that submits requests and keeps what comes back
ring       composes them; loses devices and connections, and starts devices again
```

A ring is a function of its seed: the same seed gives the same events in the same order, bit for bit.
"""
