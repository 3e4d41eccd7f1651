from __future__ import annotations

import stat
from pathlib import Path

import pytest

from partc.errors import BundleError
from partc.runtime.shell.keys import load_client_keys, load_device_keys, make_keys


def test_each_secret_in_one_place(tmp_path: Path) -> None:
    make_keys(tmp_path, ["a", "b"], "a")
    pairs = {name: load_device_keys(tmp_path / "devices" / name) for name in ("a", "b")}
    client = load_client_keys(tmp_path)
    assert set(pairs["a"].peers) == {"b", "client"}
    assert set(pairs["b"].peers) == {"a"}
    assert client.peers == {"a": pairs["a"].own.public, "b": pairs["b"].own.public}
    for keys in (*pairs.values(), client):
        holders = [
            path for path in tmp_path.rglob("*") if path.is_file() and keys.own.secret in path.read_text()
        ]
        assert len(holders) == 1
        assert keys.own.secret not in repr(keys)


def test_modes(tmp_path: Path) -> None:
    make_keys(tmp_path, ["a", "b"], "a")
    for path in tmp_path.rglob("keys"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_rotation_replaces_everything(tmp_path: Path) -> None:
    make_keys(tmp_path, ["a", "b"], "a")
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    make_keys(tmp_path, ["a", "b"], "a")
    after = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert before.keys() == after.keys()
    assert all(before[path] != after[path] for path in before)


def test_a_secret_that_others_may_read(tmp_path: Path) -> None:
    make_keys(tmp_path, ["a"], "a")
    path = tmp_path / "devices" / "a" / "keys" / "secret.key"
    path.chmod(0o644)
    with pytest.raises(BundleError, match="other users") as caught:
        load_device_keys(tmp_path / "devices" / "a")
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        '{"public": 1e999}',
        "9" * 5000,
        "[]",
        '{"public": 1, "secret": 2}',
        '{"a": "' + "x" * 40 + '"}',
    ],
)
def test_damaged(tmp_path: Path, content: str) -> None:
    make_keys(tmp_path, ["a"], "a")
    (tmp_path / "devices" / "a" / "keys" / "secret.key").write_text(content)
    with pytest.raises(BundleError):
        load_device_keys(tmp_path / "devices" / "a")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="missing") as caught:
        load_device_keys(tmp_path)
    assert "partc keys" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["secret.key", "peers.json"])
def test_a_folder_instead_of_a_file(name: str, tmp_path: Path) -> None:
    make_keys(tmp_path, ["a"], "a")
    path = tmp_path / "devices" / "a" / "keys" / name
    path.unlink()
    path.mkdir()
    with pytest.raises(BundleError, match="this is a folder, not a file") as caught:
        load_device_keys(tmp_path / "devices" / "a")
    assert caught.value.where == str(path)


def test_keys_behind_a_link_are_refused(tmp_path: Path) -> None:
    make_keys(tmp_path / "build", ["a"], "a")
    keys = tmp_path / "build" / "devices" / "a" / "keys"
    keys.rename(tmp_path / "elsewhere")
    keys.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="symbolic link"):
        load_device_keys(tmp_path / "build" / "devices" / "a")
