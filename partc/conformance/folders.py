"""Checks of folders, keys and options: what a runner says before anything is computed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partc.conformance.bench import READY_S, Bench
from partc.conformance.driven import told
from partc.conformance.findings import Mismatch, same
from partc.format.digests import canonical_json, data_digest
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from partc.runtime.client.runners import start_runner


def _ended(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and standard error of a runner that must end by itself."""
    process = start_runner(command)
    try:
        process.popen.wait(READY_S)
        process.end()
        return process.popen.returncode, process.tail()
    except subprocess.TimeoutExpired:
        raise Mismatch(f"the runner goes on: {' '.join(command[-4:])}") from None
    finally:
        process.popen.kill()
        process.popen.wait()
        process.close()


def _refused(bench: Bench, folder: Path, what: str, names: str) -> None:
    command = [*bench.command, "--stdio", "--bundle", str(folder), "--listen", "127.0.0.1:0"]
    code, said = _ended(command)
    same(code, 1, f"{what}: exit code ({said[-300:]})")
    if names not in said:
        raise Mismatch(f"{what}: standard error does not name {names}: {said[-300:]!r}")


def _flip(path: Path, at: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _changed(path: Path, change: Callable[[dict[str, Any]], None], *, seal: bool) -> None:
    """Change a JSON file; `seal`: with the digest or id that belongs to it then."""
    raw = json.loads(path.read_text())
    change(raw)
    key = "digest" if path.name == BUILD_FILE else "placement_id"
    out = {key} if key == "digest" else {key, "addresses"}
    if seal:
        raw[key] = data_digest({name: value for name, value in raw.items() if name not in out})
    path.write_text(canonical_json(raw))


def _set(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw.update({key: value})


def _drop(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw.pop(key) and None


def _program(raw: dict[str, Any]) -> None:
    raw["programs"]["decode"]["b"] = "dance\n"


DAMAGES: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit of a file": (lambda folder: _flip(folder / "part_1.txt"), "part_1.txt"),
    "a file that is longer": (lambda folder: (folder / "part_1.txt").write_text("part_1 "), "part_1.txt"),
    "a file that is missing": (lambda folder: (folder / "part_1.txt").unlink(), "part_1.txt"),
    "a link in the place of a file": (lambda folder: _linked(folder / "part_1.txt"), "part_1.txt"),
    "no build.json": (lambda folder: (folder / BUILD_FILE).unlink(), BUILD_FILE),
    "no placement.json": (lambda folder: (folder / PLACEMENT_FILE).unlink(), PLACEMENT_FILE),
    "build.json that is no JSON": (lambda folder: (folder / BUILD_FILE).write_text("{"), BUILD_FILE),
    "build.json with another digest": (
        lambda folder: _changed(folder / BUILD_FILE, _set("verified_on_hardware", True), seal=False),
        BUILD_FILE,
    ),
    "an unknown key": (
        lambda folder: _changed(folder / BUILD_FILE, _set("colour", 1), seal=True),
        BUILD_FILE,
    ),
    "a missing key": (lambda folder: _changed(folder / BUILD_FILE, _drop("memory"), seal=True), BUILD_FILE),
    "another format": (
        lambda folder: _changed(folder / BUILD_FILE, _set("format", "partc-build/9"), seal=True),
        "partc-build/9",
    ),
    "placement.json with another id": (
        lambda folder: _changed(folder / PLACEMENT_FILE, _set("epoch", 3), seal=False),
        PLACEMENT_FILE,
    ),
    "a placement of another build": (
        lambda folder: _changed(folder / PLACEMENT_FILE, _set("plan_id", "0" * 64), seal=True),
        "placement.json",
    ),
    "a line that is no instruction": (
        lambda folder: _changed(folder / PLACEMENT_FILE, _program, seal=True),
        PLACEMENT_FILE,
    ),
    "a secret that others can read": (lambda folder: _readable(folder / "keys"), "keys"),
}
"""What is wrong with the folder → how it comes to be, and what the error must name."""


def _linked(path: Path) -> None:
    other = path.parent.parent / "elsewhere.txt"
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(other)


def _readable(keys: Path) -> None:
    for path in keys.glob("*secret*"):
        path.chmod(0o644)


def check_damage(bench: Bench, device: str) -> None:
    """A folder that is not what the compile wrote: exit code 1, and an error that names the file."""
    for what, (damage, names) in DAMAGES.items():
        folder = bench.fresh("chain") / "devices" / device
        damage(folder)
        _refused(bench, folder, what, names)


def check_options(bench: Bench, device: str) -> None:
    """A wrong command line: exit code 2."""
    folder = str(bench.build("chain") / "devices" / device)
    for what, words in {
        "an unknown option": ["--bundle", folder, "--colour", "red"],
        "no --bundle": [],
        "an address without a port": ["--bundle", folder, "--listen", "127.0.0.1"],
        "a time that is none": ["--bundle", folder, "--patience", "soon"],
    }.items():
        code, said = _ended([*bench.command, *words])
        same(code, 2, f"{what}: exit code ({said[-300:]})")


def check_end(bench: Bench, device: str) -> None:
    """With --stdio a runner ends when its standard input does."""
    folder = bench.build("chain") / "devices" / device
    process = start_runner([*bench.command, "--stdio", "--bundle", str(folder), "--listen", "127.0.0.1:0"])
    try:
        address = str(told(process, "listening"))
        host, _, port = address.rpartition(":")
        if host != "127.0.0.1" or not port.isdigit() or port == "0":
            raise Mismatch(f"`listening` tells {address!r}, not the address with the port that it found")
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        process.popen.wait(READY_S)
    except subprocess.TimeoutExpired:
        raise Mismatch("the runner goes on when its standard input has ended") from None
    finally:
        process.popen.kill()
        process.popen.wait()
        process.close()
