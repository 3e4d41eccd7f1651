"""Readers of both runners, given the same bytes: each gives what it read in one text, or refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack

from partc.errors import BundleError, RunError
from partc.format.build import build_json, parse_build
from partc.format.codec import decode, encode
from partc.format.digests import canonical_json
from partc.format.dtypes import BY_SHORT
from partc.format.fields import FRAME_LIMIT
from partc.format.json_text import parse_json
from partc.format.kernel_plan import kernels_digest
from partc.format.kernel_plan_rules import parse_kernel_plan
from partc.format.placement import parse_placement, placement_json
from partc.format.program import parse_program, print_program
from partc.format.safetensors import Header
from tests.native.formats import Formats, Refused

Reader = Callable[[bytes], bytes]


def verdict(act: Callable[..., Any], *given: Any) -> Any:
    """The result of an act; None where it refuses."""
    try:
        return act(*given)
    except (Refused, BundleError, RunError, ValueError, RecursionError):
        return None


def has_a_key_twice(frame: bytes) -> bool:
    """Python takes the last of two; the native reader refuses both (docs/wire.md, "Frames")."""
    found: list[bool] = []

    def pairs(items: list[tuple[Any, Any]]) -> None:
        keys = [key for key, _ in items]
        found.append(len(keys) != len(set(keys)))

    msgpack.unpackb(frame, object_pairs_hook=pairs)
    return any(found)


def read_message(frame: bytes) -> bytes:
    """A header of a message."""
    found = encode(decode(frame, FRAME_LIMIT))
    if has_a_key_twice(frame):
        raise ValueError
    return found


def read_build(text: bytes) -> bytes:
    """A build.json."""
    return canonical_json(build_json(parse_build(_object(text)))).encode()


def read_placement(text: bytes) -> bytes:
    """A placement.json."""
    return canonical_json(placement_json(parse_placement(_object(text)))).encode()


def read_kernels(text: bytes) -> bytes:
    """A kernels.json: the digest of its kernels, and the bytes of its arena."""
    plan = parse_kernel_plan(_object(text), "it")
    return f"{kernels_digest(plan.kernels, plan.launches).hex()} {plan.arena_bytes}".encode()


def read_json_again(text: bytes) -> bytes:
    """Any JSON."""
    return canonical_json(parse_json(text, "it", BundleError, None)).encode()


def read_program(text: bytes) -> bytes:
    """The text of a program."""
    return print_program(parse_program(text.decode())).encode()


def safetensors_reader(folder: Path) -> Reader:
    """A safetensors file, which is put into a folder."""
    path = folder / "it"

    def read(content: bytes) -> bytes:
        path.write_bytes(content)
        found = Header(path, BundleError, None)
        each = {name: found.entry(name) for name in found.names()}
        rows = {name: [BY_SHORT[e.dtype].long, list(e.shape), e.offset] for name, e in each.items()}
        return json.dumps(rows, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    return read


def readers(folder: Path) -> Mapping[str, Reader]:
    """Format of native/tests/formats.cpp → Python's reader of it."""
    return {
        "build": read_build,
        "json": read_json_again,
        "kernels": read_kernels,
        "message": read_message,
        "placement": read_placement,
        "program": read_program,
        "safetensors": safetensors_reader(folder),
    }


def difference(formats: Formats, name: str, reader: Reader, content: bytes) -> str:
    """What the two readers of a format make of some bytes where that differs; empty where it does not."""
    if name == "program" and not _is_utf8(content):
        return ""  # programs stand in JSON, whose reader has refused it
    expected, found = verdict(reader, content), verdict(formats.read, name, content)
    if name == "program" and found is not None:  # odd names are written with other escapes
        found = verdict(reader, found)
    return "" if found == expected else f"{name}: {content!r}: Python {expected!r}, native {found!r}"


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _object(text: bytes) -> Any:
    found = parse_json(text, "it", BundleError, None)
    if not isinstance(found, dict):
        raise ValueError
    return found
