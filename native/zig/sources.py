"""The sources of libzmq and libsodium, which two source archives on PyPI carry whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_BACKEND = """\
# Stands for setuptools while pip downloads a source archive: pip asks for its metadata, for which it would be built.
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder, "{name}.dist-info")
    info.mkdir()
    (info / "METADATA").write_bytes(Path("PKG-INFO").read_bytes())
    return info.name
"""
_DOWNLOAD = ("download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
_HINT = """\
connect, or set PIP_INDEX_URL to an index that this machine reaches; or get
{wanted}
on another machine and put them into {folder}"""


@dataclass(frozen=True)
class Archive:
    """A source archive of a Python package that brings a C library."""

    package: str
    version: str
    sha256: str
    library: str
    """Folder of the library within it."""

    @property
    def name(self) -> str:
        """Its file."""
        return f"{self.package}-{self.version}.tar.gz"


ARCHIVES: Mapping[str, Archive] = {
    "libsodium": Archive(
        "pynacl", "1.6.2", "018494d6d696ae03c7e656e5e74cdfd8ea1326962cc401bcf018f1ed8436811c", "src/libsodium"
    ),
    "libzmq": Archive(
        "pyzmq",
        "25.1.2",
        "93f1aa311e8bb912e34f004cf186407a4e90eec4f0ecc0efd26056bf7eda0226",
        "bundled/zeromq",
    ),
}
"""libsodium 1.0.20 and libzmq 4.3.4."""


class FetchError(Exception):
    """A source archive is out of reach, or not what it should be; the message says what to do."""


def fetch(folder: Path, libraries: Iterable[str]) -> None:
    """Have the sources of libraries as FOLDER/libsodium and so on; what is there is not fetched again.

    Raises:
        FetchError: pip cannot get an archive.
    """
    for library in libraries:
        archive = ARCHIVES[library]
        if not (folder / library).is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            if not _is_whole(folder / archive.name, archive):
                _download(archive, folder)
            _unpack(folder / archive.name, archive.library, folder / library)


def _is_whole(path: Path, archive: Archive) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == archive.sha256


def _download(archive: Archive, folder: Path) -> None:
    """By pip, so that the index, proxy and certificates that it is configured for are used."""
    print(f"fetching {archive.name}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        backend = Path(scratch, "backend", "setuptools")
        backend.mkdir(parents=True)
        (backend / "__init__.py").touch()
        (backend / "build_meta.py").write_text(_BACKEND.format(name=f"{archive.package}-{archive.version}"))
        wanted = Path(scratch, "wanted.txt")
        pinned = f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}"
        wanted.write_text(f"--no-binary {archive.package}\n{pinned}\n")
        command = [sys.executable, "-m", "pip", *_DOWNLOAD, "--dest", scratch, "--requirement", str(wanted)]
        env = {**os.environ, "PYTHONPATH": str(backend.parent)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode or not _is_whole(found := Path(scratch, archive.name), archive):
            raise FetchError(_complaint(archive, folder, done.stderr))
        shutil.move(found, folder / archive.name)


def _complaint(archive: Archive, folder: Path, said: str) -> str:
    wanted = "\n".join(f"  {one.name} (sha256 {one.sha256})" for one in ARCHIVES.values())
    reasons = [line for line in said.splitlines() if line.startswith("ERROR")]
    return f"pip could not fetch {archive.name}: {' '.join(reasons[:2])}\n{_HINT.format(wanted=wanted, folder=folder)}"


def _unpack(archive: Path, prefix: str, target: Path) -> None:
    """Write the files below a folder of an archive; the target is there as a whole or not at all."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, path = member.name.partition(f"/{prefix}/")
            content = tar.extractfile(member) if path and member.isfile() else None
            if content:
                file = part / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())
    if (
        version := part / "builds/msvc/version.h"
    ).is_file():  # of libsodium, for compilers that have no configure
        shutil.copy(version, part / "src/libsodium/include/sodium/version.h")
    part.rename(target)
