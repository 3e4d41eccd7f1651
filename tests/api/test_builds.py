"""Paths that somebody may give for a build, and the messages about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.api.builds import load_build
from partc.errors import BundleError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders that look like builds, and a plan that somebody kept beside them."""
    for build in ("build", "other"):
        (tmp_path / build / "devices" / "phone").mkdir(parents=True)
        (tmp_path / build / "keys").mkdir()
        (tmp_path / build / "plan.json").touch()
        (tmp_path / build / "devices" / "phone" / "build.json").touch()
    (tmp_path / "plan.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (".", "give one of the builds found: build, other"),
        ("absent", "give one of the builds found: build, other"),
        ("build/devices", "give build"),
        ("build/devices/phone", "give build"),
        ("build/keys", "give build"),
    ],
)
def test_what_was_meant(given: str, hint: str) -> None:
    with pytest.raises(BundleError) as caught:
        load_build(Path(given))
    assert (caught.value.where, caught.value.hint) == (given, hint)


def test_inside_a_build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("build/devices")
    with pytest.raises(BundleError, match="that is a part of a build") as caught:
        load_build(Path())
    assert caught.value.hint == f"give {folder / 'build'}"
