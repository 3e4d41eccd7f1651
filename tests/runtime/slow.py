"""Runners whose steps take a while, so that something can happen in between."""

from __future__ import annotations

import os
from pathlib import Path


def slow_runners(folder: Path, seconds: float) -> dict[str, str]:
    """Variables for runners in which every sub-module of the null engine takes this long."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if 'partc.runtime' in sys.orig_argv:\n"
        "    from partc.runtime.engines import null as engine\n"
        "    run = engine.NullEngine.run\n"
        f"    engine.NullEngine.run = lambda *given: (time.sleep({seconds}), run(*given))[1]\n"
    )
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
