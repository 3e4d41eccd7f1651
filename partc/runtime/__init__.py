"""The runner: one process per device, which interprets the programs of its bundle.

In the order in which a request passes through it:

```
cli        partc-runner                      settings   how a runner is started and stopped
client     what asks a ring; results         launch     a ring of processes on this machine
manifest   manifest.json; its types, reader  program    the instructions, and their text
digests    SHA-256 of files and of data
keys       who may talk to whom              transport  sockets, encryption, events (no meaning)
wire       bytes of a message; messages      protocol   sequence numbers, epochs, liveness (no I/O)
links      the protocol over the transport   executor   one program per (request, step) (no I/O)
engine     what computes; ort_engine         sampling   logits to tokens; dtypes
source     requests at the source; jobs      text       tokens to text and back
runner     the event loop that joins all of these
```

This package needs numpy, pyzmq and msgpack alone; onnxruntime and tokenizers come in where they are used.
"""

from __future__ import annotations
