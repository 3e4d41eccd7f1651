from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format.digests import canonical_json
from partc.runtime.manifest import load_manifest, parse_manifest, seal, verify_files
from tests.runtime.bundles import language_model, reseal

Json = dict[str, Any]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build") / "devices" / "b"


def load(folder: Path) -> None:
    verify_files(folder, load_manifest(folder))


def content(folder: Path) -> Json:
    return dict(json.loads((folder / "manifest.json").read_text()))


def test_loads(bundle: Path) -> None:
    manifest = load_manifest(bundle)
    load(bundle)
    assert manifest.device == "b"
    assert manifest.receive == ("a",)
    assert manifest.types["position"].shape == ("batch",)
    assert not manifest.is_source


def set_key(*path: str | int, to: Any) -> Callable[[Json], None]:
    def change(raw: Any) -> None:
        for key in path[:-1]:
            raw = raw[key]
        raw[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("format", to="partc-bundle/9"), "cannot read"),
        (set_key("format", to="zip"), "cannot be read"),
        (set_key("plan_id", to="abc"), "plan_id"),
        (set_key("epoch", to=-1), "epoch"),
        (set_key("epoch", to=True), "an integer is expected"),
        (set_key("extra", to=1), "extra: the key is unknown"),
        (set_key("model", "task", to="poetry"), "'poetry' is unknown"),
        (set_key("model", "max_batch", to=0), "max_batch: 0 is out of range"),
        (set_key("model", to=[]), "an object is expected"),
        (set_key("values", "hidden_1", "dtype", to="complex"), "'complex' is unknown"),
        (set_key("values", "hidden_1", "shape", to=["batch", "sequence +"]), "is not a size"),
        (set_key("values", "hidden_1", "shape", to=["batch", "width"]), "'width'"),
        (set_key("peers", "receive", to=["nobody"]), "'nobody' is not another device"),
        (set_key("peers", "send", to=[]), "'c' is not among peers.send"),
        (set_key("submodules", 0, "file", to="other.onnx"), "not among the files"),
        (set_key("submodules", 0, "inputs", to=["hidden_1"]), "other inputs or outputs"),
        (set_key("programs", "prefill", to="send hidden_1 to c"), "not there yet"),
        (set_key("programs", "prefill", to="hop"), "unknown instruction"),
        (set_key("programs", "warmup", to=""), "prefill and, with state, decode"),
        (set_key("programs", "prefill", to="recv hidden_1 from a\nemit hidden_1"), "only the source emits"),
        (set_key("source", to="nobody"), "is not in the ring"),
        (set_key("files", to={"../x": {"sha256": "0" * 64, "bytes": 1}}), "not among the files"),
    ],
)
def test_refuses(bundle: Path, change: Callable[[Json], None], message: str) -> None:
    raw = content(bundle)
    change(raw)
    with pytest.raises(BundleError) as caught:
        parse_manifest(seal(raw))
    if message != "cannot read":
        assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\0b", "a\\b", ""])
def test_files_stay_in_the_folder(bundle: Path, name: str) -> None:
    raw = content(bundle)
    raw["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    with pytest.raises(BundleError, match="does not stay in the folder"):
        parse_manifest(seal(raw))


def test_a_key_twice(bundle: Path) -> None:
    text = (bundle / "manifest.json").read_text()
    (bundle / "manifest.json").write_text(text.replace('"epoch": 0', '"epoch": 0,\n "epoch": 0'))
    with pytest.raises(BundleError, match="a key stands twice"):
        load_manifest(bundle)


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle") as caught:
        load_manifest(tmp_path)
    assert caught.value.hint == "--bundle takes the folder of one device: build/devices/NAME"


def test_every_flipped_byte_of_a_file_is_found(bundle: Path) -> None:
    path = bundle / "part_1.txt"
    good = path.read_bytes()
    for index in range(len(good)):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :])
        with pytest.raises(BundleError, match="damaged") as caught:
            load(bundle)
        assert caught.value.where == str(path)
    path.write_bytes(good)
    load(bundle)


def test_every_flipped_byte_of_the_manifest_is_found(tmp_path: Path) -> None:
    bundle = language_model("null").write(tmp_path / "build") / "devices" / "b"
    path = bundle / "manifest.json"
    good = path.read_bytes()

    @given(st.integers(0, len(good) - 1), st.integers(0, 7))
    def flipped(index: int, bit: int) -> None:
        bad = good[:index] + bytes([good[index] ^ (1 << bit)]) + good[index + 1 :]
        path.write_bytes(bad)
        if _same(bad, good):
            load(bundle)
            return
        with pytest.raises(BundleError):
            load(bundle)

    flipped()


def _same(bad: bytes, good: bytes) -> bool:
    """White space may change without a change of meaning."""
    try:
        return bool(json.loads(bad) == json.loads(good))
    except ValueError:
        return False


def test_missing_and_foreign_files(bundle: Path) -> None:
    (bundle / "notes.txt").write_text("x")
    with pytest.raises(BundleError, match="not a part of this bundle"):
        load(bundle)
    (bundle / "notes.txt").unlink()
    (bundle / "part_1.txt").unlink()
    with pytest.raises(BundleError, match="missing"):
        load(bundle)


def test_links_are_refused(bundle: Path, tmp_path: Path) -> None:
    path, elsewhere = bundle / "part_1.txt", tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(BundleError, match="symbolic link"):
        load(bundle)
    path.unlink()
    os.link(elsewhere, path)
    with pytest.raises(BundleError, match="hard link"):
        load(bundle)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BundleError, match="neither a file nor a folder"):
        load(bundle)


def test_a_linked_manifest_is_refused(bundle: Path, tmp_path: Path) -> None:
    (bundle / "manifest.json").rename(tmp_path / "m.json")
    (bundle / "manifest.json").symlink_to(tmp_path / "m.json")
    with pytest.raises(BundleError, match="symbolic link"):
        load_manifest(bundle)


def test_the_digest_is_that_of_the_text(bundle: Path) -> None:
    """As docs/bundle.md says; so it can be checked without knowing how Python escapes characters."""
    raw = content(bundle)
    raw["model"]["name"] = "模型 é"
    del raw["digest"]
    text = canonical_json(raw)
    assert "模型 é" in text
    assert seal(raw)["digest"] == hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_half_a_surrogate_pair(bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"tiny"', '"tiny\\ud800"'))
    with pytest.raises(BundleError, match="damaged"):
        load_manifest(bundle)


def test_resealed_by_hand(bundle: Path) -> None:
    reseal(bundle / "manifest.json", epoch=3)
    assert load_manifest(bundle).epoch == 3
