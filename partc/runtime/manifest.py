"""manifest.json of one device: the description alone, and the files that it describes.

`load_manifest` reads and checks the description; `verify_files` then holds the folder against it: the SHA-256
of every file, no file that is not named, no links.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.format.digests import data_digest
from partc.runtime.manifest_files import refuse_link, verify_file, verify_listed
from partc.runtime.manifest_reader import read_manifest
from partc.runtime.manifest_types import (
    FORMAT,
    KEYS_FOLDER,
    MANIFEST_FILE,
    RECOMPILE,
    EngineSpec,
    FileEntry,
    Manifest,
    Model,
    State,
    Submodule,
    TensorType,
    TvmFunctions,
    TvmOptions,
)

__all__ = [
    "FORMAT",
    "KEYS_FOLDER",
    "MANIFEST_FILE",
    "RECOMPILE",
    "EngineSpec",
    "FileEntry",
    "Manifest",
    "Model",
    "State",
    "Submodule",
    "TensorType",
    "TvmFunctions",
    "TvmOptions",
    "load_manifest",
    "manifest_digest",
    "parse_manifest",
    "seal",
    "verify_file",
    "verify_files",
]


def load_manifest(folder: Path) -> Manifest:
    """Read and check `folder`/manifest.json, without opening the files that it names.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    path = folder / MANIFEST_FILE
    refuse_link(path, MANIFEST_FILE)
    try:
        raw = json.loads(path.read_bytes(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except FileNotFoundError:
        hint = "--bundle takes the folder of one device: build/devices/NAME"
        raise BundleError("no bundle: there is no manifest.json", where=str(folder), hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"not a manifest: {error}", where=str(path), hint=RECOMPILE) from None
    return parse_manifest(raw, str(path))


def parse_manifest(raw: object, where: str = MANIFEST_FILE) -> Manifest:
    """Check the content of a manifest.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    if isinstance(raw, dict) and raw.get("digest") not in (None, manifest_digest(raw)):
        raise BundleError("the manifest is damaged: its digest does not fit", where=where, hint=RECOMPILE)
    return read_manifest(raw, where)


def seal(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with its own digest in it, so that a flipped byte of the manifest itself is found as well."""
    plain = {key: value for key, value in raw.items() if key != "digest"}
    return {**plain, "digest": manifest_digest(plain)}


def manifest_digest(raw: Mapping[str, Any]) -> str:
    """SHA-256 over its canonical text, which is the file's, without the key `digest`."""
    return data_digest({key: value for key, value in raw.items() if key != "digest"})


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Hold every file of the folder against its digest; O(bytes of the bundle).

    Raises:
        BundleError: naming the first file that is missing, changed, not listed, or a link.
    """
    verify_listed(folder, manifest.files)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")
