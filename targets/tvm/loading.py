"""TVM without torch: its imports take torch along where that is installed, for conversions that partc has no use for.

A command whose model is kept (`partc.frontend.cache`) needs no torch, and importing it takes two seconds.
"""

from __future__ import annotations

import sys


def load_tvm() -> None:
    """Import TVM; torch, where it is not there yet, only when somebody asks for it."""
    if "torch" in sys.modules:
        import tvm
    else:
        sys.modules["torch"] = None  # type: ignore[assignment]  # an import of it fails, as if it were not installed
        try:
            import tvm  # noqa: F401
        finally:
            del sys.modules["torch"]
