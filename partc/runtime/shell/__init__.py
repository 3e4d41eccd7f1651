"""The process of one device: sockets, keys and signals around its core and its engine."""
