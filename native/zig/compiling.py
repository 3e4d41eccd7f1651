"""Compiles and links partc-runner and the stage (docs/stage.md) for a platform.

libsodium and our own files are compiled in turn, the files of each at the same time. A library whose sources
and flags are those of its objects is not compiled again; of our own files, zig itself compiles what changed.
The bytes follow from sources, flags and the version of zig alone: all commands run in the root of this tree with
relative paths, nothing has a date, and debug information is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from native.zig.sources import ARCHIVES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path("build/native/sources")
OBJECTS = Path("build/native/zig")
RUNNERS = Path("partc/runners")
"""Folder → platform → partc-runner and the files of the stage; below `ROOT` like the other two."""
HEADER = Path("native/include/partc_stage.h")
ARCHIVE = "libpartc_stage.a"
SHARED = "libpartc_stage.so"
OWN = Path("native/src")
STAGE = OWN / "stage"

_FLAGS = (
    "-Os", "-g0", "-fPIC", "-ffunction-sections", "-fdata-sections", "-fvisibility=hidden", "-fno-strict-aliasing",
    "-D_GNU_SOURCE", "-DNDEBUG",
)  # fmt: skip
_CXX = ("-std=c++20", "-fno-rtti")


class CompileError(Exception):
    """zig refused a file; the message is what it said."""


@dataclass(frozen=True)
class Platform:
    """The system that a runner is for."""

    triple: str
    """The name that zig has for it, with the oldest glibc."""
    is_static: bool = False
    """Whether it needs no library of the system; it can load none either, so it has no engines `ort` and `gpu`."""

    @property
    def link(self) -> tuple[str, ...]:
        """Flags of the linker."""
        return ("-static",) if self.is_static else ("-ldl",)

    @property
    def arch(self) -> str:
        """Processor architecture."""
        return self.triple.partition("-")[0]


PLATFORMS: Mapping[str, Platform] = {
    # glibc as old as that of onnxruntime's wheels. Dynamic, since engine `ort` loads a library at run time.
    "x86_64-linux": Platform("x86_64-linux-gnu.2.28"),
    "aarch64-linux-gnu": Platform("aarch64-linux-gnu.2.28"),
    # Static, with musl: Android has another C library, and ends apps for calls with which glibc starts.
    "aarch64-linux-android": Platform("aarch64-linux-musl", is_static=True),
}
"""The names are those of `targets.tvm.machine.PLATFORMS`."""


@dataclass(frozen=True)
class Unit:
    """Files that are compiled with the same flags."""

    name: str
    files: tuple[Path, ...]
    flags: tuple[str, ...]
    inputs: bytes
    """Digest of all that is compiled."""


def build(name: str, zig: Path, jobs: int, *, zmq: bool = False) -> bool:
    """Compile and link the runner of a platform; False: it is there already.

    Args:
        name: the platform.
        zig: the compiler.
        jobs: files that are compiled at a time.
        zmq: have libzmq as a second transport, which the variable PARTC_TRANSPORT chooses.

    Raises:
        CompileError: zig found a fault.
    """
    platform = PLATFORMS[name]
    units = [_libsodium(platform), *([_libzmq()] if zmq else []), _own(platform, zmq)]
    version = subprocess.run([zig, "version"], capture_output=True, text=True, check=True).stdout.strip()
    digests = [_digest(unit, platform, version) for unit in units]
    folder, record = ROOT / RUNNERS / name, ROOT / OBJECTS / name / "linked"
    made = [folder / file for file in ("partc-runner", *stage_files(platform))]
    linked = " ".join((*digests, *_link_flags(platform)))
    if all(path.is_file() for path in made) and record.is_file() and record.read_text() == linked:
        return False
    objects = {
        path: one
        for unit, digest in zip(units, digests, strict=True)
        for path, one in zip(unit.files, _compile(unit, name, zig, digest, jobs), strict=True)
    }
    folder.mkdir(parents=True, exist_ok=True)
    _link([one for path, one in objects.items() if STAGE not in path.parents], made[0], zig, platform)
    _link_stage([one for path, one in objects.items() if _is_of_stage(path)], folder, zig, platform)
    record.write_text(linked)
    return True


def stage_files(platform: Platform) -> tuple[str, ...]:
    """The files of the stage for a platform: a static one loads no libraries."""
    return (HEADER.name, ARCHIVE) if platform.is_static else (HEADER.name, ARCHIVE, SHARED)


_ROOMS = ("engines", "format", "stage")
_OF_CORE = ("execution", "sampling", "script", "step", "timings")


def _is_of_stage(path: Path) -> bool:
    """Whether a file is a part of the stage: it has programs and engines, and neither requests nor links."""
    if path == OWN / "errors.cpp":
        return True
    parts = path.relative_to(OWN).parts if path.is_relative_to(OWN) else ("",)
    return parts[0] in _ROOMS or (parts[0] == "core" and path.stem in _OF_CORE)


def _libsodium(platform: Platform) -> Unit:
    """The defines are those of the library's own build.zig."""
    root = SOURCES / "libsodium/src/libsodium"
    known = [
        "_GNU_SOURCE=1",
        "CONFIGURED=1",
        "DEV_MODE=1",
        "NATIVE_LITTLE_ENDIAN=1",
        "ASM_HIDE_SYMBOL=.hidden",
    ]
    known += ["TLS=_Thread_local", *(f"HAVE_{name}=1" for name in _SODIUM_HAS)]
    known += [f"HAVE_{name}=1" for name in _SODIUM_HAS_ON[platform.arch]]
    flags = ["-I", str(root / "include/sodium"), "-I", str(root / "include")]
    flags += ["-fwrapv", "-flax-vector-conversions", "-w", *(f"-D{one}" for one in known)]
    return Unit(
        "libsodium", _found(root, ("*.c", "*.S")), tuple(flags), ARCHIVES["libsodium"].sha256.encode()
    )


_SODIUM_HAS = (
    "ATOMIC_OPS", "C11_MEMORY_FENCES", "CATCHABLE_ABRT", "CATCHABLE_SEGV", "CLOCK_GETTIME", "GCC_MEMORY_FENCES",
    "GETPID", "INLINE_ASM", "INTTYPES_H", "MADVISE", "MLOCK", "MMAP", "MPROTECT", "NANOSLEEP", "POSIX_MEMALIGN",
    "PTHREAD", "PTHREAD_PRIO_INHERIT", "RAISE", "STDINT_H", "SYSCONF", "SYS_AUXV_H", "SYS_MMAN_H", "SYS_PARAM_H",
    "SYS_RANDOM_H", "TI_MODE", "WEAK_SYMBOLS",
)  # fmt: skip
_SODIUM_HAS_ON = {
    "x86_64": (
        "AMD64_ASM", "AVX_ASM", "CET_H", "CPUID", "MMINTRIN_H", "EMMINTRIN_H", "PMMINTRIN_H", "TMMINTRIN_H",
        "SMMINTRIN_H", "AVXINTRIN_H", "AVX2INTRIN_H", "WMMINTRIN_H", "RDRAND",
    ),
    "aarch64": ("ARMCRYPTO",),
}  # fmt: skip


def _libzmq() -> Unit:
    root = SOURCES / "libzmq"
    # Transports over web sockets, of drafts, need further libraries.
    files = tuple(
        path for path in _found(root / "src", ("*.cpp",)) if not path.name.startswith(("ws_", "wss_"))
    )
    flags = ["-I", "native/zig", "-I", str(root / "include"), *_sodium_headers(), "-w", *_CXX]
    platform_hpp = (ROOT / "native/zig/platform.hpp").read_bytes()
    return Unit("libzmq", files, tuple(flags), ARCHIVES["libzmq"].sha256.encode() + platform_hpp)


def _own(platform: Platform, zmq: bool) -> Unit:
    root = OWN
    version = re.search(r'^__version__ = "(.*)"$', (ROOT / "partc/__init__.py").read_text(), re.MULTILINE)
    flags = ["-I", "native/src", "-I", str(HEADER.parent), *_sodium_headers(), *_CXX]
    flags += ["-isystem", str(SOURCES / "libzmq/include"), "-DPARTC_HAS_ZMQ"] if zmq else []
    # As in native/CMakeLists.txt.
    flags += [
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Wconversion",
        "-Wold-style-cast",
        "-Wnon-virtual-dtor",
        "-Werror",
        "-ffp-contract=off",
        f'-DPARTC_VERSION="{version and version[1]}"',
    ]
    read = [*_found(root, ("*.cpp", "*.hpp", "*.map")), HEADER]
    content = [f"{path}\0".encode() + (ROOT / path).read_bytes() for path in read]
    files = _found(root, ("*.cpp",))
    if not zmq:
        files = tuple(path for path in files if path.parent.name != "zmq")
    if platform.is_static:
        files = tuple(path for path in files if not path.name.startswith("ort") and path.parent.name != "gpu")
    else:
        flags += ["-DPARTC_ORT", "-DPARTC_GPU"]
    return Unit("partc-runner", files, tuple(flags), b"".join(content))


def _sodium_headers() -> tuple[str, ...]:
    return "-isystem", str(SOURCES / "libsodium/src/libsodium/include")


def _found(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """Files below a folder, in an order that is the same everywhere."""
    paths = (path for pattern in patterns for path in (ROOT / folder).rglob(pattern))
    return tuple(sorted(path.relative_to(ROOT) for path in paths))


def _digest(unit: Unit, platform: Platform, zig_version: str) -> str:
    words = " ".join((zig_version, platform.triple, *_FLAGS, *unit.flags, *map(str, unit.files)))
    return hashlib.sha256(words.encode() + unit.inputs).hexdigest()


def _compile(unit: Unit, name: str, zig: Path, digest: str, jobs: int) -> Sequence[Path]:
    """The objects of all files."""
    folder = OBJECTS / name / unit.name
    objects = [folder / f"{'_'.join(path.parts)}.o" for path in unit.files]
    record = ROOT / folder / "inputs"
    if record.is_file() and record.read_text() == digest:
        return objects
    print(f"{name}: compiling {len(objects)} files of {unit.name}", flush=True)
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        flags = ["-target", PLATFORMS[name].triple, *_FLAGS, *unit.flags, "-c", "-o"]
        commands = [
            [zig, "c++" if path.suffix == ".cpp" else "cc", *flags, one, path]
            for one, path in zip(objects, unit.files, strict=True)
        ]
        for _ in pool.map(_run, commands):
            pass
    record.write_text(digest)
    return objects


def _link_flags(platform: Platform) -> tuple[str, ...]:
    return ("-target", platform.triple, *platform.link, "-Wl,--gc-sections", "-Wl,--build-id=none", "-s")


def _link(objects: Sequence[Path], runner: Path, zig: Path, platform: Platform) -> None:
    _replaced(runner, lambda part: _run([zig, "c++", *_link_flags(platform), "-o", part, *objects]))


def _link_stage(objects: Sequence[Path], folder: Path, zig: Path, platform: Platform) -> None:
    """The library by itself needs the system's C library alone; an archive is linked by a linker for libc++."""
    header, archive, *shared = (folder / file for file in stage_files(platform))
    _replaced(header, lambda part: part.write_bytes((ROOT / HEADER).read_bytes()))
    archive.with_name(f"{archive.name}.part").unlink(missing_ok=True)
    _replaced(archive, lambda part: _run([zig, "ar", "rcsD", part, *objects]))
    shows = f"-Wl,--version-script={STAGE / 'exports.map'}"
    named = f"-Wl,-soname,{SHARED}"
    flags = ["-shared", "-Wl,-z,defs", named, shows, *_link_flags(platform)]
    for path in shared:
        _replaced(path, lambda part: _run([zig, "c++", *flags, "-o", part, *objects]))


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    """Make a file that takes the place of the last one at once: one that is in use stays."""
    part = path.with_name(f"{path.name}.part")
    make(part)
    part.replace(path)


def _run(command: Sequence[str | Path]) -> None:
    env = {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(ROOT / OBJECTS / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{' '.join(map(str, command))}\n{done.stderr}")
