"""The files a user writes: model.yaml, devices.yaml, and the units in them."""

from __future__ import annotations
