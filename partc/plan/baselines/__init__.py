"""The strategies of the papers, for comparison and for users who ask for them."""

from __future__ import annotations
