"""The same bytes for both runners' readers: `python -m tests.native.fuzz differential --seconds 600`.

The bytes are those of the fuzz targets' corpus, and mutants of them: each is accepted by both readers, with the same
meaning, or by none.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.format.digests import data_digest
from partc.format.json_text import parse_json
from tests.native.compiled import NATIVE
from tests.native.formats import Formats, started
from tests.native.mutants import mutants
from tests.native.readers import difference, readers, verdict

FORMATS = {
    "build": ("build",),
    "message": ("message",),
    "placement": ("placement", "build"),
    "plan": ("kernels",),
    "program": ("program", "program"),
    "safetensors": ("safetensors",),
}
"""Fuzz target → format of each part of its inputs, between NULs."""
_AT_ONCE = 200
"""Inputs of one format before the next one has its turn."""
_SEALS = {"build": ("digest", ()), "placement": ("placement_id", ("addresses",))}


def inputs() -> dict[str, list[bytes]]:
    """Format → what the corpus has of it; digests that a fuzz target would fill in are right."""
    found: dict[str, list[bytes]] = {}
    for target, names in FORMATS.items():
        for path in sorted((NATIVE / "fuzz" / "corpus" / target).iterdir()):
            content = path.read_bytes()
            parts = content.split(b"\0", len(names) - 1) if len(names) > 1 else [content]
            for name, part in zip(names, parts, strict=False):
                found.setdefault(name, []).append(part)
    return {**found, "json": [*found["build"], *found["kernels"]]}


def sealed(name: str, text: bytes) -> bytes:
    """JSON whose digest is right where it was empty, as native/fuzz/fuzz.hpp has it."""
    if name not in _SEALS:
        return text
    key, outside = _SEALS[name]
    try:
        data: Any = parse_json(text, "it", BundleError, None)
    except BundleError:
        return text
    if not isinstance(data, dict) or data.get(key) != "":
        return text
    counted = {each: item for each, item in data.items() if each not in (key, *outside)}
    return text.replace(f'"{key}":""'.encode(), f'"{key}":"{data_digest(counted)}"'.encode(), 1)


def first_difference(
    formats: Formats, folder: Path, name: str, rng: random.Random, count: int
) -> tuple[str, int]:
    """The first of a format's inputs in the corpus, and of `count` mutants, on which the readers differ.

    Returns:
        The difference in words, empty where there is none; and how many inputs Python's reader took.
    """
    reader, known, taken = readers(folder)[name], inputs()[name], 0
    valid = [each for each in known if verdict(reader, sealed(name, each)) is not None]
    made = mutants(rng, name, known, valid)
    for content in (*known, *(next(made) for _ in range(count))):
        given = sealed(name, content)
        if found := difference(formats, name, reader, given):
            return found, taken
        taken += verdict(reader, given) is not None
    return "", taken


class Differs(Exception):
    """The readers of the two runners differ; the message names the format, the input and both verdicts."""


def compare(folder: Path, seed: int, go_on: Callable[[int], bool]) -> str:
    """Give mutants to both readers of every format in turn, for as long as `go_on` says of the inputs so far.

    Args:
        folder: where native/tests/formats.cpp was built.
        seed: of all chance.
        go_on: inputs so far → whether to take more of them.

    Returns:
        Inputs of each format, and how many of them both readers took, in words.

    Raises:
        Differs: on the first input on which they do.
    """
    rng, counts, both = random.Random(seed), Counter[str](), Counter[str]()
    with started(folder / "formats") as process, tempfile.TemporaryDirectory() as scratch:
        while go_on(counts.total()):
            for name in [*readers(Path(scratch))]:
                found, taken = first_difference(Formats(process), Path(scratch), name, rng, _AT_ONCE)
                counts[name] += _AT_ONCE
                both[name] += taken
                if found:
                    raise Differs(found)
    rows = (f"{name}: {count} inputs, {both[name]} accepted by both" for name, count in counts.items())
    return "\n".join([*rows, f"DONE {counts.total()} inputs, {both.total()} accepted by both"])
