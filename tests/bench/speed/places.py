"""The subject of a table, and where the files of the bench lie: `folder/model/…`, made once and used again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from partc.format.build import build_json, load_build, seal_build
from partc.format.digests import canonical_json
from partc.format.names import BUILD_FILE

FORMATS = ("float32", "int8", "int4")
DEVICES = ("a", "b", "c")
"""Names of the rings' devices, in order."""


@dataclass(frozen=True)
class Cell:
    """The subject of one table."""

    place: Path
    """The folder of the model, which is named like it."""
    kind: str
    """The format of the weights."""
    threads: int
    features: tuple[str, ...] | None = None
    """Features of the processor that partc's code may use; None: all that it has."""
    small_pages: bool = False
    """Whether all memory lies in pages of 4 KiB."""

    @property
    def turns(self) -> int:
        """Turns of decode in a round. A ring takes in a prompt before each, which a large model needs long for."""
        return 4 if self.place.name.startswith("110M") else 2

    @property
    def title(self) -> str:
        """The subject in words."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.place.name}, {self.kind}, {threads}{self.slowed_by}"

    @property
    def slowed_by(self) -> str:
        """What the machine does without, in words; empty where it is as it is."""
        features = (
            ""
            if self.features is None
            else f", partc with {' and '.join(self.features) or 'the least'} alone"
        )
        return features + (", pages of 4 KiB" if self.small_pages else "")


def checkpoint(place: Path) -> Path:
    """In the format of transformers."""
    return place / "checkpoint"


def forget_bundles(cell: Cell) -> None:
    """Remove partc's of that model and format."""
    shutil.rmtree(bundles(cell), ignore_errors=True)


def bundles(cell: Cell) -> Path:
    """The folder of partc's."""
    return cell.place / "partc" / cell.kind


def with_threads(build: Path, threads: int) -> Path:
    """A copy of a build with another number of threads in its build.json.

    A thread more changes nothing that was compiled, so compiling again would only take time.
    """
    copy = build.with_name(f"{build.name}-threads-{threads}")
    if not copy.exists():
        shutil.copytree(build, copy)
        for path in copy.glob(f"devices/*/{BUILD_FILE}"):
            found = load_build(path.parent)
            other = replace(found, engine=replace(found.engine, threads=threads))
            path.write_text(canonical_json(build_json(seal_build(other))))
    return copy
