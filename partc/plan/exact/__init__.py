"""The best plan with one interval per device, and the proof that it is."""

from __future__ import annotations
