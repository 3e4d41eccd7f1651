"""The strategies whose stages have several devices; their pipeline has a pass more."""

from __future__ import annotations

SHARES_ALL = ("galaxy", "megatron", "sequence-parallel")
"""Strategies by which all devices share every block: names of `partc.planner.solve`."""

SHARING = ("optimal-groups", *SHARES_ALL)
"""All by which devices may share blocks."""
