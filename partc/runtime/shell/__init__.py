"""The core's connection to the world: sockets, keys, processes, signals."""
