"""The base of all messages."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

VERSION: Literal[2] = 2
"""Number of the wire; the two ends of a connection must have the same."""

CLIENT = "client"
"""Name of every client in its `hello`."""


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    """Base of all messages."""
