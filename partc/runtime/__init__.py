"""The runner: one process per device, which executes the programs of its bundle.

```
cli        partc-runner
client     clients of a ring: requests, results, text to tokens and back
core       the device as a state machine: events in, commands out (no I/O)
shell      sockets, keys, processes and signals around the core
engines    what computes sub-modules and holds their states: null, ort, tvm
measure    measurements for partc profile
```

This package needs numpy, pyzmq and msgspec alone; onnxruntime and tokenizers come in where they are used.
"""
