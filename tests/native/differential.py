"""The same bytes for both runners' readers: `python -m tests.native.differential --seconds 600 --seed 1`.

The bytes are those of the fuzz targets' corpus, and mutants of them. Prints the first input of each format on which the
two differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.format.digests import data_digest
from partc.format.json_text import parse_json
from tests.native.compiled import compile_native
from tests.native.formats import Formats, started
from tests.native.fuzz import CORPUS
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
_SEALS = {"build": ("digest", ()), "placement": ("placement_id", ("addresses",))}
_ODD = (
    *rb'" \ \u \ud800 { } [ ] : , -> # = == A= // *0 0 - -0 1e .5 1E400 null true'.split(),
    *(str(number).encode() for number in (10**18 - 1, 2**63, 2**64)),
    *(bytes([byte]) for byte in b"\0\n\r\x1f \x7f\x80\x90\xc0\xc1\xca\xcf\xd3\xff"),
    *(letter.encode(errors="surrogatepass") for letter in "\xa0\u2028\ufeff\ud800"),
)
"""Texts that readers may take for something else."""


def inputs() -> dict[str, list[bytes]]:
    """Format → what the corpus has of it; digests that a fuzz target would fill in are right."""
    found: dict[str, list[bytes]] = {}
    for target, names in FORMATS.items():
        for path in sorted((CORPUS / target).iterdir()):
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


def mutants(rng: random.Random, known: list[bytes], valid: list[bytes]) -> Iterator[bytes]:
    """Inputs, mostly valid ones, with some bytes changed, left out, put in, or taken from another one."""
    while True:
        made = bytearray(rng.choice(known if rng.random() < 0.2 else valid))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            begin = rng.randrange(len(made) + 1)
            end = min(len(made), begin + rng.choice((0, 0, 1, 1, 2, 8)))
            other = rng.choice(known)
            at = rng.randrange(len(other) + 1)
            odd = rng.choice(_ODD), bytes([rng.randrange(256)]), other[at : at + rng.choice((1, 4, 16))], b""
            made[begin:end] = rng.choice(odd)
        yield bytes(made)


def first_difference(
    formats: Formats, folder: Path, name: str, rng: random.Random, count: int
) -> tuple[str, int]:
    """The first of a format's inputs in the corpus, and of `count` mutants, on which the readers differ.

    Returns:
        The difference in words, empty where there is none; and how many inputs Python's reader took.
    """
    reader, known, taken = readers(folder)[name], inputs()[name], 0
    valid = [each for each in known if verdict(reader, sealed(name, each)) is not None]
    made = mutants(rng, known, valid)
    for content in (*known, *(next(made) for _ in range(count))):
        given = sealed(name, content)
        if found := difference(formats, name, reader, given):
            return found, taken
        taken += verdict(reader, given) is not None
    return "", taken


def main(words: list[str]) -> int:
    """Compare until the time is over; 1 where the readers differ."""
    parser = argparse.ArgumentParser(description="Compare the readers of both runners on odd bytes.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    rng, end, counts, found = random.Random(given.seed), time.monotonic() + given.seconds, Counter[str](), 0
    folder = compile_native("dev")
    with started(folder / "formats") as process, tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() < end:
            for name in [*readers(Path(scratch))]:
                text, _ = first_difference(Formats(process), Path(scratch), name, rng, 200)
                counts[name] += 200
                found += bool(text)
                print(text, end="\n" if text else "", flush=True)
    print(dict(counts))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
