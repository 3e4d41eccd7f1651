"""How checkpoints that others have quantised store numbers, and the floats that these stand for.

| module | what it reads |
| --- | --- |
| `blocks.py` | blocks of GGUF files, by the names of llama.cpp: `Q4_0`, `Q4_K`, `Q6_K`, `MXFP4`, … |
| `numbers.py` | packed integers, floats of 8 bits, exponents, codes of a table |
| `mixes.py` | integers × scales with zero points, permuted inputs, adapters: one tensor of several |
| `integers.py` | those of them that a format of partc's own holds, repacked with every integer as it was |

All is numpy, own code, and float32 arithmetic: one product and at most one difference a weight, each rounded once, in
the order of the library that owns the format. `partc.ir.weights` names the functions in references to weights.
"""
