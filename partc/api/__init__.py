"""`import partc`: what the command line does, for programs. `partc.cli` is written on it.

| file | content |
| --- | --- |
| `compiling.py` | `compile` and `plan`: a model through the pipeline |
| `verifying.py` | `verify`: a build compared with the original |
| `build.py`, `planned.py` | `Build` and `Plan`: what they give |
| `ring.py`, `async_ring.py` | `Ring` and `AsyncRing`: the devices of a build, to generate with |
| `generations.py` | answers: pieces while they come, and the whole |
| `conversations.py` | chat templates |
| `media.py` | files of pictures and sounds as inputs |
| `client_thread.py` | the thread that holds a ring open |
| `models.py`, `pipelines.py` | importing a model; passes, and whoever follows them |
| `builds.py`, `checks.py`, `places.py` | what can be checked before the long work |
"""
