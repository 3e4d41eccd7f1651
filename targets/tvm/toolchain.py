"""The tools of other makers that code takes: TVM, for a processor a linker (`linker.py`), for NVIDIA's GPUs nvcc.

nvcc is the option `nvcc`; else what the variable `NVCC` names; else `nvcc` on the path, in `CUDA_HOME`, in
/usr/local/cuda. It is tried on an empty kernel before work begins.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from partc.errors import ConfigError
from partc.extras import install_command
from partc.scratch import scratch_folder
from targets.tvm.linker import ASK_SECONDS, Linker, find_linker, split_command
from targets.tvm.machine import Machine
from targets.tvm.process import run_tool

OLDEST_TVM = (0, 27)
"""The version that pyproject.toml asks for."""
CUDA_FOLDER = "/usr/local/cuda"
_NAME_ANOTHER = "name another in `nvcc` or NVCC"


@dataclass(frozen=True)
class Nvcc:
    """NVIDIA's compiler."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Toolchain:
    """The tools that make a machine's library, besides TVM."""

    linker: Linker | None = None
    """For a processor."""
    nvcc: Nvcc | None = None
    """For NVIDIA's GPUs."""

    def versions(self) -> dict[str, str]:
        """A description for build.json."""
        tools = {"linker": self.linker, "nvcc": self.nvcc}
        return {name: tool.version for name, tool in tools.items() if tool}


def check_installed() -> None:
    """Find TVM; it is not imported, which takes a second.

    Raises:
        ConfigError: it is missing or too old; says how to get it.
    """
    hint = f"{install_command('tvm', 'link', upgrade=True)}, or write `target: ort` for the device"
    if any(importlib.util.find_spec(package) is None for package in ("tvm", "tvm_ffi")):
        raise ConfigError("TVM is not installed", where="target: tvm", hint=hint)
    with contextlib.suppress(PackageNotFoundError):  # built from its source, it may tell no version
        found = version("apache-tvm")
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST_TVM:
            oldest = ".".join(map(str, OLDEST_TVM))
            raise ConfigError(f"TVM is of version {found}, below {oldest}", where="target: tvm", hint=hint)


@cache
def find_toolchain(machine: Machine, linker: str = "", nvcc: str = "") -> Toolchain:
    """The tools for `machine`; the options are commands, and empty where partc shall look for them.

    They are tried once in a process, since that takes time; where one is missing or fails, all are looked for again.

    Raises:
        ConfigError: one is missing or makes no code for the machine; says how to get it.
    """
    if machine.is_gpu:
        return Toolchain(nvcc=find_nvcc(machine.cuda, nvcc) if machine.cuda else None)
    return Toolchain(find_linker(machine, linker))


def find_nvcc(arch: str, option: str = "") -> Nvcc:
    """An nvcc that compiles for `arch`, which is tried on an empty kernel.

    Raises:
        ConfigError: there is none, or it cannot; says how to get one that can.
    """
    command = _nvcc_command(option)
    if command is None:
        raise ConfigError(
            "code for a GPU needs nvcc, which is not found",
            where="provider: cuda",
            hint="install the CUDA toolkit (the wheel of TVM does not hold it), or name it in `nvcc` or NVCC",
        )
    version = _nvcc_version(command)
    known = run_tool([*command, "--list-gpu-code"], ASK_SECONDS)
    if not known.problem and arch not in known.text.split():  # one of before CUDA 11 cannot list them
        raise ConfigError(
            f"{shlex.join(command)} has no {arch} ({version})",
            where="cuda_arch",
            hint=f"it has {', '.join(known.text.split())}; older GPUs need an older CUDA toolkit, newer ones a newer",
        )
    _try_kernel(command, arch, version)
    return Nvcc(tuple(command), version)


def _nvcc_command(option: str) -> list[str] | None:
    if named := option or os.environ.get("NVCC", ""):
        return split_command(named, "nvcc" if option else "NVCC")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA_FOLDER]
    places = [str(Path(home) / "bin/nvcc") for home in homes if home]
    found = next(filter(None, (shutil.which(name) for name in ("nvcc", *places))), None)
    return [found] if found else None


def _nvcc_version(command: Sequence[str]) -> str:
    asked = run_tool([*command, "--version"], ASK_SECONDS)
    release = next(
        (line for line in asked.text.splitlines() if re.search(r"\bCuda\b.* release ", line)), None
    )
    if asked.problem or release is None:
        problem = asked.problem or f"is no nvcc ({asked.first_line})"
        raise ConfigError(problem, where=shlex.join(command), hint=_NAME_ANOTHER)
    return release


def _try_kernel(command: Sequence[str], arch: str, version: str) -> None:
    """Fails where nvcc finds no C++ compiler that it likes, which nothing else shows."""
    with scratch_folder("cuda") as folder:
        source, binary = folder / "empty.cu", folder / "empty.cubin"
        source.write_text("__global__ void empty() {}\n")
        tried = run_tool([*command, f"-arch={arch}", "--cubin", "-o", str(binary), str(source)], ASK_SECONDS)
        problem = tried.problem or ("" if binary.is_file() else "it wrote nothing")
    if problem:
        raise ConfigError(
            f"cannot compile an empty kernel for {arch}: {problem} ({version})",
            where=shlex.join(command),
            hint=f"nvcc needs a C++ compiler (apt-get install g++) and has to know the GPU, or {_NAME_ANOTHER}",
        )
