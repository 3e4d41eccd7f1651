"""The processor of this machine."""

from __future__ import annotations

import platform


def architecture() -> str:
    """`aarch64` or `x86_64`, however the system calls it; another name as it is."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
