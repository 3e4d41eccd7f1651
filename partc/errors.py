"""Every error that partc raises on purpose.

```
PartcError
├── UserError      the input is wrong: exit code 1, no traceback
│   ├── ConfigError    a key, unit or value of model.yaml or devices.yaml
│   ├── ModelError     a checkpoint, a config or an ONNX file
│   ├── PlanError      no device fits, or a plan cannot be met
│   └── BundleError    a bundle that is damaged, foreign or incomplete
├── RunError       a request or a runner failed; `cause` tells why
└── InternalError  a bug of ours: exit code 70, with its traceback
```

A RunError is no UserError: a device that was lost is nobody's mistake. Its cause travels between processes with it:

| cause | meaning | exit code |
| --- | --- | --- |
| `input` | the request, an address or an option is wrong | 1 |
| `refused` | the other side does not take us: other keys, another build, too many clients | 1 |
| `lost-peer` | a device or its connection is gone; the same request may succeed later | 1 |
| `stalled` | a device is there but makes no progress; the same request may succeed later | 1 |
| `bug` | a broken invariant in a runner | 70 |

`partc.cli.main.exit_code` is the one place that turns errors into exit codes.
"""

from __future__ import annotations

from typing import Literal

Cause = Literal["lost-peer", "stalled", "refused", "input", "bug"]
"""Why a request or a runner failed."""


class PartcError(Exception):
    """Base of all errors that partc raises on purpose."""

    exit_code = 70

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        """The error in one sentence."""
        self.where = where
        """The file, key, line or node that it is wrong in."""
        self.hint = hint
        """The change to make, or the command to type next."""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.message}{remedy}"


class UserError(PartcError):
    """The user's input is wrong; the message names the place and the remedy."""

    exit_code = 1


class ConfigError(UserError):
    """A key, unit or value of model.yaml or devices.yaml is wrong."""


class ModelError(UserError):
    """A checkpoint, a model config or an ONNX file cannot be compiled."""


class PlanError(UserError):
    """No plan meets the constraints."""


class BundleError(UserError):
    """A bundle is damaged, incomplete or belongs to another plan."""


class RunError(PartcError):
    """A request or a runner failed."""

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, cause: Cause = "input"
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.cause: Cause = cause
        """Why it failed; the only thing that a program may decide by."""
        self.exit_code = 70 if cause == "bug" else 1


class InternalError(PartcError):
    """A broken invariant inside partc."""
