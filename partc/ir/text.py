r"""The text form of the IR: `parse_module(print_module(m))` is `m`, and any pass takes it from the command line.

```
module   = "partc-ir 1" model graph fact*
model    = "model" JSON                                  the fields of ModelInfo
graph    = "graph" name "opset" int "{" line* "}"
line     = "input" value ":" type
         | "weight" value "=" type "from" expr           expr: see partc.ir.weights
         | "const" value "=" array
         | "state" value ":" type ["whole"]              "whole": a step rewrites all of it, not rows of it
         | "submodule" int                               the nodes below belong to it
         | ["cut"] value ":" type ("," value ":" type)* "=" op "(" [operand ("," operand)*] ")" [attributes] ["@" scope]
         | "output" value ("," value)*
operand  = value | "_"                                   "_": an optional operand that is left out
value    = "%" name                                      a plain name, or a JSON string
type     = (dtype | "?") "[" ("?" | [size ("," size)*]) "]"
size     = int | expression of symbols                   batch, 2*sequence + 1
array    = type "[" elements "]" | type base64"…"        little-endian bytes
attributes = "{" name "=" (number | string | list | "tensor" array) ("," …)* "}"
fact     = ("sdm" | "rdm") ("none" | int "->" int ":" value ("," value)*)
         | "profile" int JSON | "plan" JSON
         | "part" name "target" name "{" program* graph+ "}"           a graph per piece
program  = "program" phase ["without" name], instructions, "end"      see partc.format.program; "without": after a loss
```

A line that starts with `//` is a comment. A line is a statement.
"""

from __future__ import annotations

from partc.ir.parser import parse_module
from partc.ir.printer import print_module

__all__ = ["parse_module", "print_module"]
