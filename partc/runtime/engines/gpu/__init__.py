"""GPUs through the interfaces of their makers: one engine over plans of launches, and a driver for each interface."""
