"""Fleets: several rings of one model on the nodes of a Ray cluster, and one endpoint in front of them.

| module | what it does |
|---|---|
| `posts` | what a device's keeper and the door are to do, from fleet.yaml and the builds |
| `keeper` | runs the runner of a device, and starts it again |
| `door` | the endpoint of `partc serve`, whose rings change while it answers |
| `actors` | the actors of both on Ray: makes a cluster what fleet.yaml says, ring by ring |
| `demo` | a cluster of local nodes |

Ray is the control plane alone. It places keepers by resources and starts them again on other clocks than a ring's own;
prompts go from the door to the sources of rings over partc's encrypted connections, tensors between devices as always,
and keys are read from the files of each node. `keeper` and `door` know nothing of Ray.
"""
