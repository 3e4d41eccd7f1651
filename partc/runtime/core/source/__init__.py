"""What the source has besides: clients' requests, changes of placement, and the status of the ring.

```
inputs        what clients ask for, checked against the model; prompts in parts
job           one request at the source
slots         slots of states, and the prompts whose rows they still have
sharing       steps that several requests share
patience      how long a step may take, and who is to blame
orphans       requests whose client is away
answers       messages to a client about its request
schedule      all requests
changes       the placement in force and the next one
watchers      those who watch the ring, and the rounds of questions to its devices
ring_monitor  the status of the ring
source        composes them
```
"""
