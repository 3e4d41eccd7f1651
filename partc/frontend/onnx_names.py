"""Symbols for the sizes of an ONNX file, whatever text the file calls them by."""

from __future__ import annotations

import re


def plain_name(text: str) -> str:
    """A text as an identifier: `p2o.DynamicDimension.1` is `p2o_DynamicDimension_1`."""
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


class SymbolNames:
    """Hands out symbols: the same one for the same text, and other ones for other texts."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        """Symbol → how the file calls that size."""

    def symbol(self, text: str) -> str:
        """The symbol of a size that is called `text`."""
        base = plain_name(text)
        name, number = base, 1
        while self._texts.setdefault(name, text) != text:
            name, number = f"{base}_{number}", number + 1
        return name
