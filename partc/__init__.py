"""partc: a compiler that partitions transformers over the small devices people already own."""

from __future__ import annotations

__version__ = "0.1.0"
