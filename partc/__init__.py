"""partc: a compiler that partitions transformers over the small devices people already own.

| | |
|---|---|
| `compile(model, devices, output)` | writes a build: one folder a device, and a plan |
| `plan(model, devices)` | the plan alone |
| `verify(build)` | the build compared with the original model |
| `Build`, `Plan` | what they give |
| `Ring`, `AsyncRing` | the devices of a build, to generate with |
| `PartcError` | the base of every error: `message`, `where`, `hint` |

docs/python.md has examples. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partc.api.async_ring import AsyncRing
    from partc.api.build import Build
    from partc.api.compiling import compile, plan
    from partc.api.generations import Generation, Piece
    from partc.api.planned import Plan
    from partc.api.ring import Ring
    from partc.api.verifying import verify
    from partc.errors import BundleError, ConfigError, ModelError, PartcError, PlanError, RunError, UserError

__version__ = "0.1.0"
__all__ = [
    "AsyncRing",
    "Build",
    "BundleError",
    "ConfigError",
    "Generation",
    "ModelError",
    "PartcError",
    "Piece",
    "Plan",
    "PlanError",
    "Ring",
    "RunError",
    "UserError",
    "compile",
    "plan",
    "verify",
]

# Unless told otherwise before it is loaded, onnxruntime keeps a number for this machine and reports how it is used.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_ERRORS = ("BundleError", "ConfigError", "ModelError", "PartcError", "PlanError", "RunError", "UserError")
_LAZY = {
    "AsyncRing": "partc.api.async_ring",
    "Build": "partc.api.build",
    "Generation": "partc.api.generations",
    "Piece": "partc.api.generations",
    "Plan": "partc.api.planned",
    "Ring": "partc.api.ring",
    "compile": "partc.api.compiling",
    "plan": "partc.api.compiling",
    "verify": "partc.api.verifying",
    **dict.fromkeys(_ERRORS, "partc.errors"),
}
"""Name → the module that has it."""


def __getattr__(name: str) -> Any:
    """What `_LAZY` names, imported when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'partc' has no attribute {name!r}")
    found = getattr(import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
