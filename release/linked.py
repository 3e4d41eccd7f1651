"""The libraries inside native runners: what is compiled and linked into them, from where, under which licence.

Versions are read where the sources are: those of zig's libraries from its package, that of libsodium from its header.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from native.zig.compiling import PLATFORMS, ROOT, SOURCES
from native.zig.sources import ARCHIVES, Archive
from release.errors import ReleaseError

OWN_LICENSE = "Apache-2.0"
_DYNAMIC = tuple(name for name, platform in PLATFORMS.items() if not platform.is_static)
_STATIC = tuple(name for name, platform in PLATFORMS.items() if platform.is_static)


@dataclass(frozen=True)
class Library:
    """A library inside of runners."""

    name: str
    version: str
    license: str
    """Expression of SPDX; `LicenseRef-` where its list has none."""
    text: str
    """The licence, with its copyright notices."""
    platforms: tuple[str, ...] = tuple(PLATFORMS)
    """Platforms whose runners contain it."""
    archive: Archive | None = None
    """The archive that its sources come from; None: they come with zig."""

    @property
    def license_file(self) -> str:
        """The name of the licence among those of a wheel."""
        return f"{self.name.replace('+', 'x').replace(' ', '-')}.txt"


def libraries(sodium: Path = ROOT / SOURCES / "libsodium") -> list[Library]:
    """All of them, by name.

    Args:
        sodium: the sources of libsodium.

    Raises:
        ReleaseError: zig or the sources of libsodium are not there.
    """
    zig = _zig()
    lib = zig / "lib"
    llvm = _llvm_version(_read(lib / "libcxx/include/__config"))
    with_exception = "Apache-2.0 WITH LLVM-exception"
    return [
        Library("compiler_rt", _zig_version(), "MIT", _read(zig / "LICENSE")),
        # The runner's beginning, and the few functions that every program has of its own.
        Library(
            "glibc start files",
            _glibc_version(),
            "LicenseRef-LGPL-with-exception-for-start-files",
            _notice(lib / "libc/glibc/csu/elf-init-2.33.c"),
            _DYNAMIC,
        ),
        Library("libc++", llvm, with_exception, _read(lib / "libcxx/LICENSE.TXT")),
        Library("libc++abi", llvm, with_exception, _read(lib / "libcxxabi/LICENSE.TXT")),
        Library(
            "libsodium",
            _found(r'SODIUM_VERSION_STRING "(.+)"', sodium / "src/libsodium/include/sodium/version.h"),
            "ISC",
            _read(sodium / "LICENSE"),
            archive=ARCHIVES["libsodium"],
        ),
        Library("libunwind", llvm, with_exception, _read(lib / "libunwind/LICENSE.TXT")),
        Library(
            "musl",
            _found(r'VERSION "(.+)"', lib / "libc/musl/src/internal/version.h"),
            "MIT",
            _read(lib / "libc/musl/COPYRIGHT"),
            _STATIC,
        ),
    ]


def license_expression(linked: Iterable[Library]) -> str:
    """The licences of a wheel with runners, as one expression."""
    others = sorted({one.license for one in linked} - {OWN_LICENSE})
    return " AND ".join([OWN_LICENSE, *(f"({one})" if " " in one else one for one in others)])


def _zig() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise ReleaseError("zig is not installed: make release installs it, and so does the extra `link`")
    return Path(spec.origin).parent


def _zig_version() -> str:
    from importlib.metadata import version

    return version("ziglang")


def _glibc_version() -> str:
    """The oldest glibc of the dynamic platforms, by which zig compiles its start files."""
    (version,) = {PLATFORMS[name].triple.partition("-gnu.")[2] for name in _DYNAMIC}
    return version


def _llvm_version(config: str) -> str:
    """`_LIBCPP_VERSION 220108` is 22.1.8."""
    number = re.search(r"_LIBCPP_VERSION (\d+)", config)
    if number is None:
        raise ReleaseError("libc++ of this zig does not tell its version as those before did")
    value = int(number[1])
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


def _found(pattern: str, path: Path) -> str:
    found = re.search(pattern, _read(path))
    if found is None:
        raise ReleaseError(f"{path.name} does not tell the version of its library")
    return found[1]


def _notice(path: Path) -> str:
    """The comment at the beginning of a source: what it may be used for."""
    text, end, _ = _read(path).partition("*/")
    if not text.startswith("/*") or not end:
        raise ReleaseError(f"{path.name} of this zig does not begin with its licence")
    return f"{text}{end}\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = (
            "run `python -m native.zig` first, and install the version of ziglang that constraints.txt names"
        )
        raise ReleaseError(f"{path} is missing\n  hint: {hint}") from None
