"""The one exception of this room."""

from __future__ import annotations


class ReleaseError(Exception):
    """A release cannot be made; the message says why, and what to do."""
