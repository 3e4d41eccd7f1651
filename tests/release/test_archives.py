"""What `make release` makes, with stand-ins for runners: contents, tags, modes, sums, the same bytes again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs the extra `release`")
pytest.importorskip("cyclonedx", reason="needs the extra `release`")

from native.zig.__main__ import _HOSTS as HOSTS
from native.zig.compiling import PLATFORMS
from native.zig.sources import ARCHIVES
from partc import __version__
from release.__main__ import main, make_release
from release.archives import _check_glibc, platform_tag
from release.errors import ReleaseError
from release.linked import Library, libraries
from release.sums import check_same, sums
from release.tree import ROOT, check_committed, commit_time
from tests.release.names import BILL, NATIVE, PLAIN, SOURCE, VERSIONED

LINKED = [
    Library("libsodium", "1.0.20", "ISC", "of sodium\n", archive=ARCHIVES["libsodium"]),
    Library("musl", "1.2.5", "MIT", "of musl\n", ("aarch64-linux-android",)),
    Library("libc++", "22.1.8", "Apache-2.0 WITH LLVM-exception", "of libc++\n"),
    Library("glibc start files", "2.28", "LicenseRef-start", "of glibc\n"),
]
EPOCH = 1_750_000_000


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runners")
    for name in PLATFORMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name}\n")
    return {name: folder / name for name in PLATFORMS}


@pytest.fixture(scope="module")
def made(runners: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release; `again` beside it is a second one, made with another umask and in another time zone."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made in a checkout")
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))
        make_release(folder / "dist", runners, LINKED)
        patch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        umask = os.umask(0o077)
        try:
            make_release(folder / "again", runners, LINKED)
        finally:
            os.umask(umask)
    time.tzset()
    return folder / "dist"


def _wheel(made: Path, name: str) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(made / name) as wheel:
        return {info.filename: info for info in wheel.infolist()}


def _text(made: Path, name: str, file: str) -> str:
    with zipfile.ZipFile(made / name) as wheel:
        return wheel.read(file).decode()


def test_two_runs_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert {path.name for path in made.iterdir()} == {NATIVE, PLAIN, SOURCE, BILL, "SHA256SUMS"}
    check_same(made, made.with_name("again"))
    (tmp_path / SOURCE).write_bytes(b"other")
    with pytest.raises(ReleaseError, match=r"a second run gives other bytes: .*partc-0\.1\.0\.tar\.gz"):
        check_same(made, tmp_path)


def test_sums_are_those_of_the_files(made: Path) -> None:
    lines = (made / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{digest}  {name}" for name, digest in sums(made).items()]
    assert sums(made)[BILL] == hashlib.sha256((made / BILL).read_bytes()).hexdigest()


def test_runners_are_in_one_wheel_and_programs_there(made: Path) -> None:
    infos = _wheel(made, NATIVE)
    modes = {
        name: infos[f"partc/runners/{name}/partc-runner"].external_attr >> 16 & 0o777 for name in PLATFORMS
    }
    assert modes == dict.fromkeys(PLATFORMS, 0o755)
    assert infos["partc/__init__.py"].external_attr >> 16 & 0o777 == 0o644
    assert not [name for name in _wheel(made, PLAIN) if name.startswith("partc/runners/")]
    assert {info.date_time for info in infos.values()} == {(2025, 6, 15, 15, 6, 40)}


def test_tags_say_where_wheels_go(made: Path) -> None:
    native = HeaderParser().parsestr(_text(made, NATIVE, f"{VERSIONED}.dist-info/WHEEL"))
    assert native["Root-Is-Purelib"] == "false"
    assert native.get_all("Tag") == ["py3-none-manylinux_2_28_aarch64", "py3-none-manylinux_2_28_x86_64"]
    plain = HeaderParser().parsestr(_text(made, PLAIN, f"{VERSIONED}.dist-info/WHEEL"))
    assert (plain["Root-Is-Purelib"], plain.get_all("Tag")) == ("true", ["py3-none-any"])


def test_a_wheel_of_phones_alone_has_no_tag() -> None:
    with pytest.raises(ReleaseError, match="needs one for Linux"):
        platform_tag({"aarch64-linux-android": Path()})


def test_a_runner_that_needs_a_newer_system_is_refused() -> None:
    _check_glibc("x86_64-linux", b"\0GLIBC_2.28\0GLIBC_2.2.5\0")
    with pytest.raises(ReleaseError, match=r"the runner for x86_64-linux needs glibc 2\.34"):
        _check_glibc("x86_64-linux", b"\0GLIBC_2.34\0")
    with pytest.raises(ReleaseError, match="its platform promises none"):
        _check_glibc("aarch64-linux-android", b"\0GLIBC_2.17\0")


def test_licences_of_what_is_inside_go_along(made: Path) -> None:
    infos, folder = _wheel(made, NATIVE), f"{VERSIONED}.dist-info/licenses"
    assert {f"{folder}/LICENSE", *(f"{folder}/linked/{one.license_file}" for one in LINKED)} <= infos.keys()
    assert _text(made, NATIVE, f"{folder}/linked/libsodium.txt") == "of sodium\n"
    metadata = HeaderParser().parsestr(_text(made, NATIVE, f"{VERSIONED}.dist-info/METADATA"))
    assert metadata["License-Expression"] == (
        "Apache-2.0 AND (Apache-2.0 WITH LLVM-exception) AND ISC AND LicenseRef-start AND MIT"
    )
    assert not [name for name in _wheel(made, PLAIN) if "licenses/linked" in name]
    plain = HeaderParser().parsestr(_text(made, PLAIN, f"{VERSIONED}.dist-info/METADATA"))
    assert plain["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize("name", [NATIVE, PLAIN])
def test_manual_pages_and_completions_are_shared(made: Path, name: str) -> None:
    shared = {
        one.partition(".data/data/share/")[2] for one in _wheel(made, name) if ".data/data/share/" in one
    }
    assert {
        "man/man1/partc.1",
        "man/man1/partc-fleet-up.1",
        "man/man1/partc-runner.1",
        "bash-completion/completions/partc",
        "zsh/site-functions/_partc",
        "fish/vendor_completions.d/partc.fish",
    } <= shared


def test_the_bill_lists_what_runners_link_and_what_pip_brings(made: Path) -> None:
    bill = json.loads((made / BILL).read_text())
    assert _text(made, NATIVE, f"{VERSIONED}.dist-info/sboms/partc.cdx.json") == (made / BILL).read_text()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"].startswith("2025-06-15T15:06:40")
    parts = {part["bom-ref"]: part for part in bill["components"]}
    sodium = parts["linked:libsodium"]
    assert (sodium["version"], sodium["hashes"][0]["content"]) == ("1.0.20", ARCHIVES["libsodium"].sha256)
    assert {f"linked:{one.name}" for one in LINKED} <= parts.keys()
    required = {part["name"] for part in parts.values() if part["scope"] == "required"}
    assert required == {"msgspec", "numpy", "pyzmq", *(one.name for one in LINKED)}
    assert parts["package:torch"]["version"] == "2.13.0"
    assert "package:mypy" not in parts
    (own,) = (one for one in bill["dependencies"] if one["ref"] == "partc")
    assert set(own["dependsOn"]) == parts.keys()


def test_the_bill_is_one(made: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    try:
        found = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(
            (made / BILL).read_text()
        )
    except Exception as error:
        if "Missing" not in type(error).__name__ or os.environ.get("CI"):
            raise
        pytest.skip(f"needs more of cyclonedx: {error}")
    assert found is None


def test_the_source_archive_is_the_files_of_the_commit(made: Path) -> None:
    with tarfile.open(made / SOURCE) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {"partc/__init__.py", "native/zig/compiling.py", "release/__main__.py", "Makefile", "LICENSE"}
    assert wanted <= names
    assert not [name for name in names if name.startswith(("partc/runners", "share/", "linked/"))]


def _pip(*words: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, *words, "--no-deps", "--no-index"],
        check=True,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
    )


def test_pip_takes_the_wheel_with_runners_on_linux(made: Path, tmp_path: Path) -> None:
    if sys.platform != "linux" or (name := HOSTS.get(os.uname().machine)) is None:
        pytest.skip("needs Linux on a processor for which there are runners")
    _pip(
        "install",
        "--ignore-installed",
        "--no-compile",
        "--prefix",
        str(tmp_path),
        "--find-links",
        str(made),
        f"partc=={__version__}",
    )
    (runner,) = tmp_path.rglob(f"runners/{name}/partc-runner")
    assert subprocess.run([runner], capture_output=True, text=True, check=True).stdout == f"{name}\n"
    assert (tmp_path / "share/man/man1/partc.1").is_file()


@pytest.mark.parametrize(
    ("platform", "name"),
    [("manylinux_2_28_aarch64", NATIVE), ("manylinux2014_x86_64", PLAIN), ("win_amd64", PLAIN)],
)
def test_pip_takes_the_wheel_of_a_platform(made: Path, tmp_path: Path, platform: str, name: str) -> None:
    words = [
        "--platform",
        platform,
        "--only-binary=:all:",
        "--find-links",
        str(made),
        "--dest",
        str(tmp_path),
    ]
    _pip("download", *words, f"partc=={__version__}")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_libraries_are_read_where_they_are_compiled_from(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    header = tmp_path / "src/libsodium/include/sodium/version.h"
    with pytest.raises(ReleaseError, match=r"version\.h is missing"):
        libraries(tmp_path)
    header.parent.mkdir(parents=True)
    header.write_text('#define SODIUM_VERSION_STRING "1.0.20"\n')
    (tmp_path / "LICENSE").write_text("ISC License\n")
    found = {one.name: one for one in libraries(tmp_path)}
    assert found["libsodium"].version == "1.0.20"
    assert found["musl"].platforms == ("aarch64-linux-android",)
    assert "aarch64-linux-android" not in found["glibc start files"].platforms
    assert "unlimited" in found["glibc start files"].text
    assert {"compiler_rt", "libc++", "libc++abi", "libunwind"} < found.keys()
    assert all(one.version[0].isdigit() and one.text for one in found.values())


def test_a_release_is_made_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a").touch()
    with pytest.raises(ReleaseError, match="1 files differ from the commit: a"):
        check_committed(tmp_path)
    subprocess.run([*git, "add", "a"], check=True)
    date = {**os.environ, "GIT_COMMITTER_DATE": f"@{EPOCH} +0000"}
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True, env=date)
    check_committed(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert commit_time(tmp_path) == EPOCH
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ReleaseError, match="'yesterday', and no number"):
        commit_time(tmp_path)


def test_another_folder_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letters").touch()
    assert main(["--out", str(tmp_path)]) == 1
    assert "holds letters, which is no file of a release" in capsys.readouterr().err
    assert (tmp_path / "letters").exists()


def test_runners_that_are_built_need_no_newer_glibc_than_the_tag() -> None:
    built = {name: ROOT / "partc/runners" / name / "partc-runner" for name in PLATFORMS}
    there = {name: path for name, path in built.items() if path.is_file()}
    if not there:
        pytest.skip("needs a native runner: make native")
    for name, path in there.items():
        _check_glibc(name, path.read_bytes())
