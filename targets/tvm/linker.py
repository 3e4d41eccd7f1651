"""The linker of a platform: found, tried on an empty library before work begins, and used.

| for | looked for, in this order |
| --- | --- |
| every platform | the option `linker`; a variable like `PARTC_LINKER_AARCH64_LINUX_GNU` |
| Android | clang of the NDK that `ANDROID_NDK_HOME` or `ANDROID_NDK_ROOT` names |
| Linux | a C compiler that makes code for the platform: `aarch64-linux-gnu-gcc`, or `cc` of such a machine |
| what is left | `ld.lld`, of the system or of the wheel `ziglang`; it links for all, without libraries of theirs |
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.errors import ConfigError, UserError
from partc.scratch import scratch_folder
from targets.tvm.elf import AARCH64, X86_64, read_elf
from targets.tvm.machine import Machine, Platform
from targets.tvm.process import run_tool

NDK_VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
ASK_SECONDS = 60
"""Seconds that a tool may take to name itself, and for an empty library."""
LINK_SECONDS = 600
"""Seconds that a linker may take; it takes less than one."""
_LLD = "pip install ziglang (brings ld.lld, which links for every platform)"
_COMPILERS = ("gcc", "cc", "clang")
_OPTIONS = ("--strip-all", "--gc-sections", "--build-id=none", "--hash-style=gnu")
_PROCESSORS = {"x86_64": X86_64, "aarch64": AARCH64}


@dataclass(frozen=True)
class Linker:
    """A command that makes shared libraries for one platform."""

    command: tuple[str, ...]
    is_lld: bool
    """Whether it is lld itself, or else a compiler that calls a linker and knows the platform's libraries."""
    version: str
    """The name that it gives itself."""


def find_linker(machine: Machine, option: str = "") -> Linker:
    """The first linker of the table above that links.

    Raises:
        ConfigError: there is none, or the one that the user names does not fit.
    """
    variable = f"PARTC_LINKER_{machine.name.upper().replace('-', '_')}"
    for named, where in ((option, "linker"), (os.environ.get(variable, ""), variable)):
        if named:
            return _named_linker(split_command(named, where), machine, where)
    if "android" in machine.name and (ndk := _ndk_variable()):
        return _named_linker([str(_ndk_clang(ndk, machine.platform))], machine, ndk)
    unfit = []
    for command in _usual_commands(machine):
        found = _try_linker(command, machine.platform)
        if isinstance(found, Linker):
            return found
        unfit.append(f"{shlex.join(command)}: {found}")
    raise ConfigError(
        "\n  ".join((f"there is no linker for {machine.name}", *unfit)),
        where="the tvm target",
        hint=f"{_LLD}; or {_usual_remedy(machine)}; or name one in `linker` or {variable}",
    )


def split_command(named: str, where: str) -> list[str]:
    """The words of a command that a user wrote.

    Raises:
        ConfigError: there are none, or a quotation mark has no other.
    """
    try:
        words = shlex.split(named)
    except ValueError as error:
        message = f"{named!r} is no command: {error}"
        raise ConfigError(message, where=where, hint="quote it as a shell wants it") from None
    if not words:
        hint = "write a command, or leave it out: partc looks for one"
        raise ConfigError(f"{named!r} is no command", where=where, hint=hint)
    return words


def _named_linker(command: Sequence[str], machine: Machine, where: str) -> Linker:
    found = _try_linker(command, machine.platform)
    if isinstance(found, Linker):
        return found
    hint = f"name a C compiler for {machine.name}, or ld.lld: {_LLD}"
    raise ConfigError(f"{shlex.join(command)}: {found}", where=where, hint=hint)


def _try_linker(command: Sequence[str], platform: Platform) -> Linker | str:
    """The linker, or what is wrong with it."""
    asked = run_tool([*command, "--version"], ASK_SECONDS)
    version = asked.first_line
    if asked.problem or not version:
        return asked.problem or "does not say its version"
    linker = Linker(tuple(command), "LLD" in version, version)
    if not linker.is_lld:
        triple = run_tool([*command, "-dumpmachine"], ASK_SECONDS)
        if triple.problem or not triple.first_line:
            return f"is no compiler and no lld ({version})"
        machine, android = triple.first_line, "android" in platform.triple
        if machine.partition("-")[0] != platform.arch or ("android" in machine) != android:
            return f"links for {machine}, not for {platform.triple}"
    return _try_library(linker, platform) or linker


def _try_library(linker: Linker, platform: Platform) -> str:
    """The failure with an empty library: a compiler may lack its linker, or the platform's libraries."""
    with scratch_folder("link") as folder:
        made = folder / "empty.so"
        try:
            link_objects(linker, platform, [], made, ASK_SECONDS)
            processor = read_elf(made.read_bytes()).machine
        except UserError as error:
            return error.message
        except (OSError, ValueError, struct.error):
            processor = None
    return "" if processor == _PROCESSORS[platform.arch] else f"makes no libraries for {platform.triple}"


def _usual_commands(machine: Machine) -> Iterator[Sequence[str]]:
    """Compilers for Linux, then every lld."""
    arch = machine.platform.arch
    names = [] if "android" in machine.name else [f"{arch}-linux-gnu-gcc", *_COMPILERS]
    for name in (*names, "ld.lld"):
        if path := shutil.which(name):
            yield [path]
    if program := zig():
        yield [program, "ld.lld"]


def _usual_remedy(machine: Machine) -> str:
    if "android" in machine.name:
        return f"set {NDK_VARIABLES[0]} to the folder of an Android NDK"
    return f"apt-get install gcc-{machine.platform.arch.replace('_', '-')}-linux-gnu"


def zig() -> str | None:
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


def link_objects(
    linker: Linker,
    platform: Platform,
    objects: Sequence[str],
    output: Path,
    seconds: float = LINK_SECONDS,
) -> None:
    """Make one shared library of object files; scratch files lie beside it.

    Raises:
        UserError: the linker failed, or took longer than `seconds`.
    """
    page = (f"max-page-size={platform.page}",) if platform.page else ()
    options = [*_OPTIONS, "--no-as-needed", *(word for size in page for word in ("-z", size))]
    if linker.is_lld:
        system = [_stub(linker, platform, name, output.parent, seconds) for name in platform.libraries]
        made_by = [*linker.command, "-m", platform.elf, "-shared", *options]
    else:
        system = ["-lm"]
        made_by = [*linker.command, "-shared", "-nostartfiles", f"-Wl,{','.join(options)}"]
    _link([*made_by, "-o", str(output), *objects, *system], seconds)


def _stub(linker: Linker, platform: Platform, name: str, folder: Path, seconds: float) -> str:
    """An empty library of that name: so the linker notes that it is needed, though it is not here."""
    empty, stub = folder / "empty.c", folder / f"stub-{name}"
    empty.touch()
    if linker.is_lld:
        options = ["-m", platform.elf, "-shared", f"-soname={name}", "--format=binary"]
    else:
        options = ["-shared", "-nostdlib", f"-Wl,-soname,{name}"]
    _link([*linker.command, *options, "-o", str(stub), str(empty)], seconds)
    return str(stub)


def _link(command: Sequence[str], seconds: float) -> None:
    if problem := run_tool(command, seconds).problem:
        raise UserError(
            f"the linker failed: {problem}",
            where=shlex.join(command[:2]),
            hint="name another in the option `linker`",
        )
