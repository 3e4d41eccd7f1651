"""The strategies whose stages have several devices; their pipeline has a pass more."""

from __future__ import annotations

SHARING = ("optimal-groups", "galaxy", "megatron", "sequence-parallel")
"""Names of `partc.plan.strategies`."""
