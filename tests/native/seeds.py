"""Inputs that fuzzing begins with, from the project's own cases: `python -m tests.native.seeds FOLDER` writes them.

Digests are left empty where a target fills them in (`sealed` of native/fuzz/fuzz.hpp).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import safetensors.numpy
from msgspec.structs import replace

from partc.format.build import FileEntry, build_json, seal_build
from partc.format.codec import encode
from partc.format.digests import canonical_json
from partc.format.placement import placement_json
from partc.format.role import Role
from partc.format.safetensors import Entry, lay_out
from partc.runtime.core.commands import Command, Send
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import Event, Received
from partc.runtime.core.start import Start
from tests.format.test_kernel_plan import raw as kernels
from tests.format.test_kernel_plan import raw_for_gpu as kernels_for_gpu
from tests.golden import trace
from tests.golden.test_protocol import PROTOCOL, played
from tests.native.builds import build_of
from tests.native.compiled import NATIVE
from tests.native.zmtp import MORE, command, frame, greeting, ready
from tests.runtime import living
from tests.runtime.roles import chain, roles_of

_LIBRARY = """
double cos(double);
extern int absent_everywhere __attribute__((weak));
static double counter = 40;
double *const volatile pointer = &counter;
const unsigned char partc_kernels[32] = {1, 2, 3};
double __tvm_ffi_add(double x) { return cos(x) + *pointer; }
double (*volatile table[])(double) = {__tvm_ffi_add, cos};
int partc_run(void) { return &absent_everywhere ? 0 : 1; }
int partc_work(void) { return partc_run(); }
int partc_wake(void) { return 0; }
"""


def seeds() -> dict[str, list[bytes]]:
    """Target → inputs that it accepts."""
    messages, roles = _protocol()
    roles += [
        made for text in ("a p0", "a p0, b p1", "a p0, b p1, a p2") for made in roles_of(chain(text)).values()
    ]
    placements = [_compact(_unsealed(placement_json(role.placement), "placement_id")) for role in roles]
    builds = [_build_text(role) for role in roles]
    return {
        "build": [*builds, _compact(_unsealed(build_json(build_of()), "digest")), _compact(build_json(build_of()))],
        "elf": [_library()],
        "member": _lies(),
        "message": messages,
        "placement": [*placements, *map(b"\0".join, zip(placements, builds, strict=True))],
        "plan": [_compact(kernels()), _compact(kernels_for_gpu())],
        "program": [
            "\0".join([*programs.values()][:2]).encode()
            for role in roles
            for programs in role.placement.programs.values()
        ],
        "zmtp": _connections(),
        "safetensors": [_laid_out(), safetensors.numpy.save({"a": np.zeros((2, 3), np.float32)})],
    }  # fmt: skip


def _lies() -> list[bytes]:
    """Scripts of native/fuzz/member.cpp: each kind of lie alone, now and then, by each device."""
    honest = bytes(4) * 5
    kinds = (bytes([kind, 3 * kind, 17 * kind % 256, 5]) for kind in range(12))
    alone = [bytes([kind % 3]) + (honest + lie) * 6 for kind, lie in enumerate(kinds)]
    return [b"\0", b"\x0d" + honest * 8, *alone]


def _connections() -> list[bytes]:
    """Bytes of the other end, behind what native/fuzz/zmtp.cpp makes of the first two."""
    frames = frame(MORE, b"header") + command(b"PING", b"\0\x09context") + frame(0, b"x" * 300)
    pieces = b"\x01\x06header" + b"\x02\x07\x04PING\0\x09" + b"\x00\x03end"
    return [
        b"\x01\0" + greeting() + ready() + frames,
        b"\x00\x05" + greeting() + ready(b"ROUTER") + frames,
        b"\x03\0" + greeting(b"CURVE") + command(b"HELLO", b"\x01\0" + bytes(72) + b"\x01" * 120),
        b"\x02\0" + greeting(b"CURVE") + command(b"WELCOME", bytes(160)) + command(b"ERROR", b"\x03400"),
        *(bytes([kind, 7]) + pieces + b"\x80\x02no" for kind in (4, 5, 6, 7)),
    ]


RING = NATIVE / "fuzz" / "parts" / "ring.json"
"""The ring that native/fuzz/member.cpp plays."""


def ring_text() -> str:
    """The ring of `tests.runtime.living`: the builds of its devices, its placement, and those without one of them."""
    made = living.roles(mirrored=True)
    data = {
        "builds": [build_json(seal_build(role.build)) for role in made.values()],
        "contingencies": [
            placement_json(living.placement_of(each, mirrored=True)) for each in living.WITHOUT
        ],
        "placement": placement_json(made["a"].placement),
    }
    return canonical_json(data)


class _Watched(Device):
    """A device whose messages are kept."""

    messages: list[bytes]
    roles: list[Role]

    def __init__(self, role: Role, start: Start, now: float) -> None:
        super().__init__(role, start, now)
        self.roles.append(role)

    def on(self, event: Event, now: float) -> list[Command]:
        found = super().on(event, now)
        received = [event.message] if isinstance(event, Received) else []
        sent = [command.message for command in found if isinstance(command, Send)]
        self.messages += map(encode, [*received, *sent])
        return found


def _protocol() -> tuple[list[bytes], list[Role]]:
    """All messages of golden/protocol, and the roles that their devices have."""
    _Watched.messages, _Watched.roles = [], []
    with mock.patch.object(trace, "Device", _Watched):
        for path in sorted(PROTOCOL.glob("*.md")):
            played(path.read_text(encoding="utf-8"))
    return _Watched.messages, _Watched.roles


def _compact(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _unsealed(data: Any, key: str) -> Any:
    return {**data, key: ""}


def _build_text(role: Role) -> bytes:
    """The build of a role whose sub-modules have files."""
    modules = tuple(replace(each, file="it") for each in role.build.submodules)
    build = replace(role.build, submodules=modules, files={"it": FileEntry("0" * 64, 0)})
    return _compact(_unsealed(build_json(seal_build(build)), "digest"))


def _laid_out() -> bytes:
    header, entries = lay_out([Entry("a", "f32", (3, 2)), Entry("b", "i8", (64,)), Entry("é", "bf16", ())])
    return header + bytes(max(entry.offset + entry.bytes for entry in entries))


def _library() -> bytes:
    """A library of this processor, linked as `targets.tvm.linker` links kernels."""
    with tempfile.TemporaryDirectory() as folder:
        source, made, linked = (Path(folder, name) for name in ("it.c", "it.o", "it.so"))
        source.write_text(_LIBRARY)
        compiler = ["cc", "-c", "-fPIC", "-O1", "-fno-builtin", "-fno-asynchronous-unwind-tables"]
        subprocess.run([*compiler, source, "-o", made], check=True)
        options = ["-shared", "--strip-all", "--build-id=none", "--hash-style=gnu"]
        subprocess.run([sys.executable, "-m", "ziglang", "ld.lld", *options, made, "-o", linked], check=True)
        return linked.read_bytes()


def write_seeds(folder: Path) -> None:
    """Write all seeds into a folder for each target, each input once, under the digest of its content.

    The ring of the target `member` is brought up to date as well.
    """
    RING.write_text(ring_text(), encoding="utf-8")
    for target, contents in seeds().items():
        write_inputs(folder / target, contents)


def write_inputs(folder: Path, contents: Iterable[bytes]) -> None:
    """Write inputs under the names that libFuzzer gives them."""
    folder.mkdir(parents=True, exist_ok=True)
    for content in contents:
        (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write inputs that fuzzing begins with.")
    parser.add_argument("folder", type=Path)
    write_seeds(parser.parse_args().folder)
