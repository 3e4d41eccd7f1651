"""The device as a state machine: events in, commands out; no sockets, clock, files or engine."""
