"""Who runs the devices of a ring in a test: Python's runner, the native one, or both in one ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from partc.format.names import device_folders
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.client.runners import PYTHON_RUNNER
from partc.runtime.engines.ort_library import VARIABLE, library_path

PYTHON = "python"
NATIVE = pytest.param("native", marks=pytest.mark.native)
NATIVE_SOURCE = pytest.param("native-source", marks=pytest.mark.native)
"""Of three devices a, b, c Python runs b: messages go from one kind to the other and back."""
PYTHON_SOURCE = pytest.param("python-source", marks=pytest.mark.native)
"""Python runs the source alone."""
MIXED = (NATIVE_SOURCE, PYTHON_SOURCE)
IN_PYTHON = {"native": "", "native-source": "b", "python-source": "a"}
"""Kind → devices that Python runs."""


@dataclass(frozen=True)
class Runners:
    """The command that runs each device."""

    native: Path | None = None
    """The native runner; None: Python runs all devices."""
    in_python: str = ""
    """Devices that Python runs all the same, a letter each."""

    def command(self, device: str) -> Sequence[str]:
        """The command that starts the runner of a device, without options."""
        return PYTHON_RUNNER if self.native is None or device in self.in_python else (str(self.native),)

    def launch(self, build: Path, **options: Any) -> LocalRing:
        """`launch_local` with these runners; they find onnxruntime where it is installed."""
        commands = {folder.name: self.command(folder.name) for folder in device_folders(build)}
        library = library_path()
        env = {**({VARIABLE: str(library)} if library else {}), **options.pop("env", {})}
        return launch_local(build, runners=commands, env=env, **options)

    def patched(self, device: str) -> Runners:
        """Python runs this device, too: only its code can be changed (`patched.py`)."""
        return Runners(self.native, self.in_python + device)


def made(kind: str, native: Callable[[], Path]) -> Runners:
    """The runners of a kind; `native` builds the native one."""
    return Runners() if kind == PYTHON else Runners(native(), IN_PYTHON[kind])
