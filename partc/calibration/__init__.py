"""Quantising a checkpoint with calibration data: `partc quantize`.

Rounding each weight to the nearest step loses more than it must: the error of one weight can be made up for by those
that are rounded after it, as far as their inputs go together (GPTQ). What inputs do is measured on texts.

| file | does |
| --- | --- |
| `quantizing.py` | a checkpoint folder and texts → a quantised checkpoint folder |
| `texts.py` | a text as windows of tokens, all of one length |
| `layers.py` | the layers of a network, called one after the other with what they were called with |
| `rounding.py` | a matrix and the products of its inputs → integers and scales |
| `packed.py` | the folder, as compressed-tensors has it |

The folder is one like any other: partc compiles it integer for integer, and runtimes that know compressed-tensors read
it, unless it has experts that are floats.
"""

from __future__ import annotations

BLOCKS = (32, 64, 128)
"""Weights of a row that may share a scale."""
TOKENS = 16384
"""Tokens of a text that are used at most, where nothing is said."""
LEAST_TOKENS = 64
"""Tokens that a text has to have at least."""
INSTEAD = "write `quantize: int4` in model.yaml: that rounds every weight by itself"
"""What helps where a model cannot be calibrated."""
