"""The shared library of onnxruntime, for the native runner, which has no Python to import it with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

VARIABLE = "PARTC_ONNXRUNTIME"
"""The variable of the environment in which a native runner finds the path."""


def library_path() -> Path | None:
    """The library of the installed package, which is not imported; None where there is none."""
    package = importlib.util.find_spec("onnxruntime")
    for folder in (package and package.submodule_search_locations) or ():
        for path in sorted((Path(folder) / "capi").glob("libonnxruntime.so*")):
            return path
    return None
