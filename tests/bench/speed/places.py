"""The files of the bench: `folder/model/…`, made once and used again."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec.structs import replace

from partc.format.build import BUILD_FILE, build_json, load_build, seal_build
from partc.format.digests import canonical_json

FORMATS = ("float32", "int8", "int4")
GGUF_KINDS = {"int8": "Q8_0", "int4": "Q4_0"}
"""The format of llama.cpp that is nearest."""
DEVICES = ("a", "b", "c")
"""Names of the rings' devices, in order."""


def checkpoint(place: Path) -> Path:
    """In the format of transformers."""
    return place / "checkpoint"


def gguf(place: Path, kind: str) -> Path:
    """For llama.cpp."""
    return place / "gguf" / f"{kind}.gguf"


def genai(place: Path, kind: str) -> Path:
    """For onnxruntime-genai."""
    return place / "genai" / kind


def bundle(place: Path, kind: str, processes: int) -> Path:
    """partc's, for a ring of so many devices of one thread each."""
    return place / "partc" / kind / f"{processes}"


def forget_bundles(place: Path, kind: str) -> None:
    """Remove partc's of one format, with blocks of any size."""
    for folder in bundle(place, kind, 1).parent.parent.glob(f"{kind}*"):
        shutil.rmtree(folder)


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
