"""`make native`: fetching, the table of platforms, and (tier slow) the same bytes from two folders."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from native.zig import sources
from native.zig.__main__ import host_platform
from native.zig.compiling import PLATFORMS, ROOT, RUNNERS, stage_files
from native.zig.sources import ARCHIVES, FetchError, fetch
from partc.runtime.client.launch import launch_local
from targets.tvm import machine
from tests.runtime.bundles import language_model

FILES = {
    "src/libsodium/src/libsodium/sodium/core.c": b"int core;",
    "src/libsodium/builds/msvc/version.h": b"1.0.20",
    "src/libsodium/src/libsodium/include/sodium/version.h.in": b"",
    "setup.py": b"raise SystemExit",
}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive such as that of pynacl, where somebody without network has put it."""
    path = tmp_path / ARCHIVES["libsodium"].name
    with tarfile.open(path, "w:gz") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"pynacl-1.6.2/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(sources, "ARCHIVES", {"libsodium": replace(ARCHIVES["libsodium"], sha256=digest)})
    return path


def test_an_archive_that_is_there_is_unpacked(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)  # pip is not even asked
    fetch(archive.parent, ["libsodium"])
    unpacked = archive.parent / "libsodium"
    found = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    assert {"src/libsodium/sodium/core.c", "src/libsodium/include/sodium/version.h"} <= found
    assert "setup.py" not in found
    archive.unlink()
    fetch(archive.parent, ["libsodium"])


def test_what_pip_cannot_fetch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError) as caught:
        fetch(tmp_path, ["libsodium"])
    told = str(caught.value)
    assert "pip could not fetch pynacl-1.6.2.tar.gz: ERROR: " in told
    assert f"put them into {tmp_path}" in told
    assert ARCHIVES["libsodium"].sha256 in told


def test_a_damaged_archive_is_fetched_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.write_bytes(archive.read_bytes()[:-1])
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError):
        fetch(archive.parent, ["libsodium"])


def test_platforms_are_those_of_devices() -> None:
    assert {name: one.arch for name, one in PLATFORMS.items()} == {
        name: one.arch for name, one in machine.PLATFORMS.items()
    }


@pytest.mark.slow
def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    """Minutes: everything is compiled twice, with caches of zig's own for each."""
    pytest.importorskip("ziglang")
    folders = [tmp_path / "one", tmp_path / "another folder"]
    made = [_built_in(folder) for folder in folders]
    assert made[0] == made[1]
    runner = folders[0] / RUNNERS / host_platform() / "partc-runner"
    build = language_model("null").write(tmp_path / "build")
    with launch_local(build, runners=dict.fromkeys("abc", (str(runner),))) as ring, ring.client() as client:
        assert client.generate([1, 2, 3], max_new_tokens=4).tokens == _by_python(build)


def _by_python(build: Path) -> Sequence[Sequence[int]]:
    with launch_local(build, runner="python") as ring, ring.client() as client:
        return client.generate([1, 2, 3], max_new_tokens=4).tokens


def _built_in(folder: Path) -> dict[str, str]:
    """The runners for two platforms, as digests."""
    shutil.copytree(ROOT / "native", folder / "native")
    (folder / "partc").mkdir()
    shutil.copy(ROOT / "partc/__init__.py", folder / "partc")
    platforms = ["aarch64-linux-android", "x86_64-linux"]
    subprocess.run(
        [sys.executable, "-m", "native.zig", *platforms],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")},
        check=True,
    )
    made = {
        f"{name}/{file}": folder / RUNNERS / name / file
        for name in platforms
        for file in ("partc-runner", *stage_files(PLATFORMS[name]))
    }
    assert not [name for name, path in made.items() if str(folder).encode() in path.read_bytes()]
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in made.items()}
