"""The runner: one process per device, which executes the programs of its bundle.

```
cli        partc-runner
core       the device as a state machine: events in, commands out (no I/O)
engines    null, ort, plan, gpu: they compute sub-modules and hold their states
shell      sockets, keys and signals around a core and its engine
client     clients of a ring: requests, results, text to tokens and back; rings of local processes
measure    measurements for partc profile
virtual    rings of cores in virtual time
processor  the processor cores that this process may use
```

This package needs numpy, pyzmq and msgspec alone; onnxruntime and tokenizers come in where they are used.
"""
