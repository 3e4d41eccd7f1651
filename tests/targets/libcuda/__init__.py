"""The stand-in for NVIDIA's driver, compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("libcuda.cpp")


def library_folder(folder: Path, source: Path = _SOURCE) -> Path:
    """A folder for LD_LIBRARY_PATH with `libcuda.so.1` in it; skipped where there is no compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    command = [compiler, "-std=c++20", "-O1", "-g1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1"), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
