"""Builds whose files a test has changed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from partc.format.build import FileEntry, build_json, seal_build
from partc.format.digests import canonical_json
from partc.format.names import BUILD_FILE
from partc.format.role import load_role


def seal(folder: Path, **changes: Any) -> None:
    """Give a device's build these fields and the digests of its files as they are, so that other faults are found."""
    build = replace(load_role(folder).build, **changes)
    files = {name: _entry((folder / name).read_bytes()) for name in build.files}
    sealed = seal_build(replace(build, files=files))
    (folder / BUILD_FILE).write_text(canonical_json(build_json(sealed)))


def _entry(content: bytes) -> FileEntry:
    return FileEntry(hashlib.sha256(content).hexdigest(), len(content))


def as_on_cuda(build: Path, folder: Path) -> Path:
    """A copy of a build for OpenCL whose devices give the same source to CUDA (`tests/targets/libcuda`)."""
    shutil.copytree(build, folder)
    for path in folder.rglob(BUILD_FILE):
        seal(path.parent, engine=replace(load_role(path.parent).engine, provider="cuda"))
    return folder
