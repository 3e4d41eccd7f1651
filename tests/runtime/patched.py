"""Local runners with code of a test in them: slow, hung, broken."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import indent


def patched_runners(folder: Path, code: str, device: str = "") -> dict[str, str]:
    """Variables for runners that run some code as they start; one device's alone where it is named.

    Python imports a module `sitecustomize` before anything else; these variables make it find ours, in `folder`.
    """
    folder.mkdir(exist_ok=True)
    wanted = "'partc.runtime' in sys.orig_argv"
    if device:
        wanted = f"any(argument.endswith('/devices/{device}') for argument in sys.orig_argv)"
    (folder / "sitecustomize.py").write_text(f"import os, sys, time\nif {wanted}:\n{indent(code, '    ')}\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def patched_engines(folder: Path, run: str, device: str = "") -> dict[str, str]:
    """The same for the calls of the null engine: `run` is an expression; `inner(*given)` is the call itself."""
    return patched_runners(
        folder,
        "from partc.runtime.engines import null as engine\n"
        "inner = engine.NullEngine.run\n"
        f"engine.NullEngine.run = lambda *given: {run}\n",
        device,
    )


def slow_runner(folder: Path, seconds: float, device: str) -> dict[str, str]:
    """Variables for a runner in which every sub-module of the null engine takes this long."""
    return patched_engines(folder, f"(time.sleep({seconds}), inner(*given))[1]", device)
