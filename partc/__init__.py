"""partc: a compiler that partitions transformers over the small devices people already own."""

from __future__ import annotations

import os

__version__ = "0.1.0"

# Unless told otherwise before it is loaded, onnxruntime keeps a number for this machine and reports how it is used.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
