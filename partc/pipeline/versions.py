"""Versions of the code that made a result: kept results are used only by the code that made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata, util
from pathlib import Path

import partc

LIBRARIES = (
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnx_graphsurgeon",
    "onnxscript",
    "torch",
    "transformers",
)
"""Those that can change what is imported, and the tensors that are emitted; a target names its own."""


@cache
def code_version(*packages: str) -> dict[str, str]:
    """Versions of partc and of the libraries, and a hash of the sources of `packages` (or single modules).

    The hash is for checkouts, where the code changes more often than its version; some milliseconds.
    """
    digest = hashlib.sha256()
    for package in packages:
        origin = _origin(package)
        is_package = origin.name == "__init__.py"
        for path in sorted(origin.parent.rglob("*.py")) if is_package else [origin]:
            digest.update(f"{package} {path.relative_to(origin.parent)} ".encode() + path.read_bytes())
    return {"partc": partc.__version__, "sources": digest.hexdigest(), **library_versions(LIBRARIES)}


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    return {name: version for name in names if (version := _version(name))}


def _origin(package: str) -> Path:
    spec = util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
