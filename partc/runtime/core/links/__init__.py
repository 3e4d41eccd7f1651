"""The links of a device, and whether the ring stands.

```
link         sequence numbers, acknowledgements, sessions, epochs
windows      frames that may be unacknowledged on a link
headers      headers of `data`, held against the placement
rights       whether the sender of a message may send it
callers      who is at the other end of each connection, by its greeting
incoming     values that others send: once, in order, acknowledged
outgoing     values for others: kept until they are acknowledged
links        the handshake; composes these
membership   whether the ring stands: loading, joining, complete, degraded
outages      devices and links that are down, and how long a ring waits for them
```
"""
