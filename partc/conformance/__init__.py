"""The conformance kit: whether a runner speaks the formats and the wire (docs/conformance.md).

| module | contents |
| --- | --- |
| `cli` | the command line, and what it prints |
| `findings` | a check, what came of it, and how a runner differs |
| `bundles` | small builds: states of both kinds, residuals, plans that return, prompts in parts |
| `reference` | the same builds computed by our own cores and engines, in virtual time |
| `bench` | the runner under test: in rings of ours, and alone |
| `peer` | a participant that the kit plays, message by message |
| `driven` | one device alone, all of whose neighbours are the kit |
| `rings` | checks of whole rings: values, tokens, requests, ends |
| `lives` | checks of lives: devices that are killed, and come back |
| `links` | checks of one device alone: connections, messages, links |
| `folders` | checks of folders, keys and options, before anything is computed |
| `table` | all checks |
"""
