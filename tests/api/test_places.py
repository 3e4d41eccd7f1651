"""Places to write to: refused before the long work, in the words of the command line."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

from partc.api.places import check_file, check_folder
from partc.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    return tmp_path


@pytest.mark.parametrize("path", ["new", "new/deep/er", "."])
def test_what_can_be_made_is_fine_and_not_made(path: str, folder: Path) -> None:
    check_folder(Path(path), "-o", replaced=True)
    check_folder(folder / path, "-o")
    assert [entry.name for entry in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("path", ["file", "file/x", "file/x/y", "/proc/x", "/proc/x/y"])
def test_a_folder_that_cannot_be(path: str) -> None:
    with pytest.raises(UserError) as caught:
        check_folder(Path(path), "--dump-dir")
    assert caught.value.where == path
    assert caught.value.hint == "give another folder with --dump-dir"


def test_a_read_only_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the folder itself may be written: a build is exchanged as a whole."""

    def refuse(dir: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(dir / "tmp1234"))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(UserError, match=r"cannot write in .*: Permission denied") as caught:
        check_folder(Path("build"), "-o", replaced=True)
    assert caught.value.where == "build"


@pytest.mark.parametrize("path", ["new.npz", "file", "/dev/null"])
def test_a_file_that_can_be(path: str) -> None:
    check_file(Path(path), "--output")


@pytest.mark.parametrize("path", [".", "nodir/x.npz", "file/x.npz", "/proc/x.npz"])
def test_a_file_that_cannot_be(path: str) -> None:
    with pytest.raises(UserError) as caught:
        check_file(Path(path), "--output")
    assert caught.value.where == path
    assert str(caught.value.hint).endswith("give another file with --output")
