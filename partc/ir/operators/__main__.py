"""`python -m partc.ir.operators`: print docs/operators.md."""

from __future__ import annotations

from partc.ir.operators.document import document

if __name__ == "__main__":
    print(document(), end="")
