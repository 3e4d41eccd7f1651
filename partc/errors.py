"""Every error that partc raises on purpose.

```
PartcError
├── UserError      the input is wrong: exit code 1, no traceback
│   ├── ConfigError    a key, unit or value of model.yaml or devices.yaml
│   ├── ModelError     a checkpoint, a config or an ONNX file
│   ├── PlanError      no device fits, or a plan cannot be met
│   ├── BundleError    a bundle that is damaged, foreign or incomplete
│   └── RunError       a request that failed: a lost peer, a refused client, a prompt that is too long
└── InternalError  a bug of ours: exit code 70, with its traceback
```

`partc.cli.main.exit_code` is the one place that turns them into exit codes.
"""

from __future__ import annotations


class PartcError(Exception):
    """Base of all errors that partc raises on purpose."""

    exit_code = 70

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        """What is wrong, in one sentence."""
        self.where = where
        """The file, key, line or node that it is wrong in."""
        self.hint = hint
        """What to change or to type next."""

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


class RunError(UserError):
    """A request to the runners failed."""


class InternalError(PartcError):
    """A broken invariant inside partc."""
