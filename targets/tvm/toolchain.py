"""The tools of other makers that a library takes: a linker, and nvcc for a GPU. Found and tried before work begins.

| for | looked for, in this order |
| --- | --- |
| every platform | the option `linker`; a variable like `PARTC_LINKER_AARCH64_LINUX_GNU` |
| Android | clang of the NDK that `ANDROID_NDK_HOME` or `ANDROID_NDK_ROOT` names |
| Linux | a C compiler that makes code for the platform: `aarch64-linux-gnu-gcc`, or `cc` of such a machine |
| what is left | `ld.lld`, of the system or of the wheel `ziglang`; it links for all, without libraries of theirs |
| a GPU | the option `nvcc`; the variable `NVCC`; `nvcc` on the path; in `CUDA_HOME`, in /usr/local/cuda |
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.errors import ConfigError
from targets.tvm.machine import Machine, Platform

NDK_VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
_LLD = "pip install ziglang (brings ld.lld, which links for every platform)"
_COMPILERS = ("gcc", "cc", "clang")
_SECONDS = 60
CUDA_FOLDER = "/usr/local/cuda"


@dataclass(frozen=True)
class Linker:
    """A command that makes shared libraries for one platform."""

    command: tuple[str, ...]
    is_lld: bool
    """Whether it is lld itself, or else a compiler that calls a linker and knows the platform's libraries."""
    version: str
    """What it calls itself."""


@dataclass(frozen=True)
class Nvcc:
    """NVIDIA's compiler."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Toolchain:
    """All that a machine's library is made with, besides TVM."""

    linker: Linker
    nvcc: Nvcc | None = None

    def versions(self) -> dict[str, str]:
        """For the manifest."""
        return {"linker": self.linker.version, **({"nvcc": self.nvcc.version} if self.nvcc else {})}


def find_toolchain(machine: Machine, linker: str = "", nvcc: str = "") -> Toolchain:
    """The tools for `machine`; the options are commands, and empty where partc shall look for them.

    Raises:
        ConfigError: one is missing or makes no code for the machine; says how to get it.
    """
    return Toolchain(find_linker(machine, linker), find_nvcc(machine.cuda, nvcc) if machine.cuda else None)


def find_linker(machine: Machine, option: str = "") -> Linker:
    """The first linker of the table above.

    Raises:
        ConfigError: there is none, or the one that the user names does not fit.
    """
    variable = f"PARTC_LINKER_{machine.name.upper().replace('-', '_')}"
    for named, where in ((option, "linker"), (os.environ.get(variable, ""), variable)):
        if named:
            return _named_linker(shlex.split(named), machine, where)
    if "android" in machine.name and (ndk := _ndk_variable()):
        return _named_linker([str(_ndk_clang(ndk, machine.platform))], machine, ndk)
    for command in _usual_commands(machine):
        found = _try_linker(command, machine.platform)
        if isinstance(found, Linker):
            return found
    raise ConfigError(
        f"there is no linker for {machine.name}",
        where="the tvm target",
        hint=f"{_LLD}; or {_usual_remedy(machine)}; or name one in `linker` or {variable}",
    )


def _named_linker(command: Sequence[str], machine: Machine, where: str) -> Linker:
    found = _try_linker(command, machine.platform)
    if isinstance(found, Linker):
        return found
    hint = f"name a C compiler for {machine.name}, or ld.lld: {_LLD}"
    raise ConfigError(f"{shlex.join(command)}: {found}", where=where, hint=hint)


def _try_linker(command: Sequence[str], platform: Platform) -> Linker | str:
    """The linker, or what is wrong with it."""
    version = _first_line([*command, "--version"])
    if version is None:
        return "cannot be run"
    if "LLD" in version:
        return Linker(tuple(command), True, version)
    machine = _first_line([*command, "-dumpmachine"])
    if machine is None:
        return f"is no compiler and no lld ({version})"
    android = "android" in platform.triple
    if machine.partition("-")[0] != platform.arch or ("android" in machine) != android:
        return f"links for {machine}, not for {platform.triple}"
    return Linker(tuple(command), False, version)


def _usual_commands(machine: Machine) -> Iterator[Sequence[str]]:
    """Compilers for Linux, then every lld."""
    arch = machine.platform.arch
    names = [] if "android" in machine.name else [f"{arch}-linux-gnu-gcc", *_COMPILERS]
    for name in (*names, "ld.lld"):
        if path := shutil.which(name):
            yield [path]
    if zig := _zig():
        yield [zig, "ld.lld"]


def _usual_remedy(machine: Machine) -> str:
    if "android" in machine.name:
        return f"set {NDK_VARIABLES[0]} to the folder of an Android NDK"
    return f"apt-get install gcc-{machine.platform.arch.replace('_', '-')}-linux-gnu"


def _zig() -> str | None:
    """The program in the wheel `ziglang`."""
    found = importlib.util.find_spec("ziglang")
    program = Path(found.origin).with_name("zig") if found and found.origin else None
    return str(program) if program and program.is_file() else None


def _ndk_variable() -> str | None:
    return next((name for name in NDK_VARIABLES if os.environ.get(name)), None)


def _ndk_clang(variable: str, platform: Platform) -> Path:
    """The NDK has one compiler for each platform and version of Android, whatever machine it runs on."""
    ndk = Path(os.environ[variable])
    found = sorted(ndk.glob(f"toolchains/llvm/prebuilt/*/bin/{platform.triple}-clang"))
    if not found:
        raise ConfigError(
            f"{ndk} has no toolchains/llvm/prebuilt/*/bin/{platform.triple}-clang",
            where=variable,
            hint="set it to the folder of an NDK of version 21 or later, or unset it to link with lld",
        )
    return found[0]


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
    known = _output([*command, "--list-gpu-code"])
    if known is None:
        raise ConfigError("cannot be run", where=shlex.join(command), hint="name another in `nvcc` or NVCC")
    if arch not in known.split():
        raise ConfigError(
            f"{shlex.join(command)} has no {arch}",
            where="cuda_arch",
            hint=f"it has {', '.join(known.split())}; an older GPU needs an older CUDA toolkit",
        )
    _try_kernel(command, arch)
    version = _output([*command, "--version"]) or ""
    return Nvcc(tuple(command), next((line for line in version.splitlines() if "release" in line), version))


def _nvcc_command(option: str) -> list[str] | None:
    if named := option or os.environ.get("NVCC", ""):
        return shlex.split(named)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA_FOLDER]
    places = [str(Path(home) / "bin/nvcc") for home in homes if home]
    found = next(filter(None, (shutil.which(name) for name in ("nvcc", *places))), None)
    return [found] if found else None


def _try_kernel(command: Sequence[str], arch: str) -> None:
    """Fails where nvcc finds no C++ compiler that it likes, which nothing else shows."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cu"
        source.write_text("__global__ void empty() {}\n")
        output = str(Path(folder) / "empty.cubin")
        result = _run([*command, f"-arch={arch}", "--cubin", "-o", output, str(source)])
    if result.returncode:
        raise ConfigError(
            f"cannot compile an empty kernel: {result.stdout.strip()}",
            where=shlex.join(command),
            hint="nvcc needs a C++ compiler: apt-get install g++",
        )


def _first_line(command: Sequence[str]) -> str | None:
    """What a command prints, up to the end of the first line; None where it fails."""
    return next(iter((_output(command) or "").splitlines()), None)


def _output(command: Sequence[str]) -> str | None:
    try:
        result = _run(command)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False
    )
