"""Files of earlier compiles are copied instead of made again: whole devices, and single tensors.

A record `runs/parts/<device>.json` is written when a device's files are complete. It is no part of the bundle:

```
inputs      hash of all that the files were made from
artifact    what the target returned
files       path → {sha256, bytes} of every file
times       path → time of modification, ns
tensors     hash of what a tensor was made from → [path, offset] of its bytes
```

Nothing is believed of a file that was changed since: its size and time must be those of the record, or else its
hash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import msgspec

from partc.atomic import flush_tree, write_file
from partc.bundle.copying import Report, copy_file, copy_range
from partc.bundle.tensors import fingerprint
from partc.format.build import FileEntry
from partc.format.digests import canonical_json, data_digest
from partc.format.files import Stamp, hash_folder
from partc.format.plain_files import is_inside
from partc.ir.graph import ModelInfo, Module, Part, Weight
from partc.ir.text import print_module
from partc.ir.weights import leaves, print_expr
from partc.pipeline.contract import Artifact, Progress, Target, TensorStore
from partc.pipeline.versions import code_version, library_versions

RECORDS = Path("runs") / "parts"
"""Folder of a build with one record a device."""
_CODE = ("partc.format", "partc.ir", "partc.bundle", "partc.frontend", "targets")
"""Packages that decide what the files of a part contain, beside its graphs; the front end reads and makes tensors."""


@dataclass(frozen=True)
class Record:
    """The inputs that the files of one device were made from; see the top of this file."""

    inputs: str
    artifact: Artifact
    files: Mapping[str, FileEntry]
    times: Mapping[str, int]
    tensors: Mapping[str, tuple[str, int]]

    def open(self, folder: Path, name: str) -> BufferedReader | None:
        """A file of the device, which lies in `folder`; None if it is not as it was written."""
        entry, time = self.files.get(name), self.times.get(name)
        if entry is None:
            return None
        try:
            file = (folder / name).open("rb")
        except OSError:
            return None
        # What is checked is what was opened: another compile may put its own build here at any time.
        status = os.fstat(file.fileno())
        same_size = status.st_size == entry.bytes
        if same_size and (status.st_mtime_ns == time or _digest(file) == entry.sha256):
            return file
        file.close()
        return None


def _digest(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def inputs_hash(part: Part, info: ModelInfo, target: Target, extra: Sequence[Stamp]) -> str:
    """Hash of all that the files of one device depend on; checkpoint files count by their stamps."""
    weights = [weight for graph in part.graphs for weight in graph.weights()]
    names = {leaf.file for weight in weights if weight.source for leaf in leaves(weight.source)}
    return data_digest({
        "code": code_version(*_CODE),
        "target": [target.name, target.identity(), library_versions(target.libraries)],
        "graphs": [print_module(Module(info, graph)) for graph in part.graphs],
        "checkpoint": fingerprint(info, sorted(names)),
        "extra": list(extra),
    })  # fmt: skip


def tensor_hash(weight: Weight, info: ModelInfo) -> str:
    """Hash of all that the bytes of one tensor depend on."""
    assert weight.source is not None
    return data_digest({
        "code": code_version(*_CODE),
        "source": print_expr(weight.source),
        "type": [weight.dtype, list(weight.shape or ())],
        "checkpoint": fingerprint(info, sorted({leaf.file for leaf in leaves(weight.source)})),
        "random": [info.random, info.task, info.dtype] if info.random else None,
    })  # fmt: skip


def finished_devices(build: Path) -> int:
    """The number of devices of a build whose files are complete."""
    return len(list((build / RECORDS).glob("*.json")))


def write_record(workspace: Path, device: str, record: Record) -> None:
    """Note that the files of a device are finished, once they are on the disk."""
    path = workspace / RECORDS / f"{device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    flush_tree(workspace / "devices" / device)
    write_file(path, canonical_json(msgspec.to_builtins(record)))


def new_record(
    folder: Path, inputs: str, artifact: Artifact, tensors: Mapping[str, tuple[str, int]]
) -> Record:
    """The record of the files in `folder`, which are read for their hashes."""
    files = hash_folder(folder)
    times = {name: (folder / name).stat().st_mtime_ns for name in files}
    return Record(inputs, artifact, files, times, tensors)


class Earlier:
    """The folders that earlier compiles left: the build that is to be replaced, and unfinished ones."""

    def __init__(self, builds: Sequence[Path]) -> None:
        self._records = [
            (build / "devices" / path.stem, record)
            for build in builds
            for path in sorted((build / RECORDS).glob("*.json"))
            if (record := _read_record(path)) is not None
        ]
        self._open = ExitStack()
        self._files: dict[Path, BinaryIO | None] = {}

    def close(self) -> None:
        """Close the files that tensors were copied from."""
        self._open.close()

    def take_over(self, device: Path, inputs: str, progress: Progress) -> Record | None:
        """Copy the files of a device to its new folder if equal inputs made them; None: there are no such files."""
        for source, record in self._records:
            if record.inputs == inputs and _copy_device(source, record, device, progress):
                return record
        return None

    def find(self, tensor: str) -> tuple[BinaryIO, int] | None:
        """The file with the tensor of that hash and the offset of its bytes; None: no build has it any more."""
        for folder, record in self._records:
            if tensor in record.tensors:
                name, offset = record.tensors[tensor]
                if (file := self._file(folder, name, record)) is not None:
                    return file, offset
        return None

    def _file(self, folder: Path, name: str, record: Record) -> BinaryIO | None:
        if folder / name not in self._files:
            file = self._files[folder / name] = record.open(folder, name)
            if file is not None:
                self._open.enter_context(file)
        return self._files[folder / name]


class DeviceTensors(TensorStore):
    """The tensors of one device: those that an earlier build has are copied from it, and all are noted."""

    def __init__(self, info: ModelInfo, earlier: Earlier) -> None:
        self._info = info
        self._earlier = earlier
        # As things were before the weight was read: a checkpoint that changes meanwhile must not match later.
        self._hashes: dict[Weight, str] = {}
        self.places: dict[str, tuple[str, int]] = {}
        """Hash of a tensor → its file and offset, for the record of the device."""

    def copy(self, weight: Weight, file: BinaryIO, offset: int) -> bool:
        """See `TensorStore`."""
        self._hashes[weight] = tensor_hash(weight, self._info)
        found = self._earlier.find(self._hashes[weight])
        if found is None:
            return False
        file.flush()
        try:
            copy_range(*found, file, offset, weight.bytes({}), lambda count: None)
        except OSError:
            return False
        return True

    def note(self, weight: Weight, file: str, offset: int) -> None:
        """See `TensorStore`."""
        self.places[self._hashes[weight]] = (file, offset)


def _copy_device(source: Path, record: Record, target: Path, progress: Progress) -> bool:
    """Copy the files of a record; False, and nothing is left, if one of them is not there as it was written."""
    total, done = sum(entry.bytes for entry in record.files.values()), 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress("write weights", done, total)

    try:
        for name in record.files:
            _copy_one(source, record, name, target / name, report)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        return False
    return True


def _copy_one(source: Path, record: Record, name: str, target: Path, report: Report) -> None:
    file = record.open(source, name)
    if file is None:
        raise OSError(f"{name} is not as it was written")
    with file:
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_file(file, target, report)


def _read_record(path: Path) -> Record | None:
    """A record; None where it is damaged, of another version of partc, or names files outside of the device."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    names = (*record.files, *(name for name, _ in record.tensors.values()))
    return record if all(map(is_inside, names)) else None
