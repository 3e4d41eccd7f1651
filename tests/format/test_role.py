from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format.build import parse_build
from partc.format.digests import canonical_json
from partc.format.files import verify_files
from partc.format.placement import parse_placement, placement_json
from partc.format.role import load_role, source_role
from tests.runtime.bundles import language_model, reseal, resealed

Json = dict[str, Any]
Change = Callable[[Json], None]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build") / "devices" / "b"


def load(folder: Path) -> None:
    verify_files(folder, load_role(folder).files)


def content(folder: Path, file: str) -> Json:
    return dict(json.loads((folder / file).read_text()))


def test_loads(bundle: Path) -> None:
    role = load_role(bundle)
    load(bundle)
    assert role.device == "b"
    assert role.receive == ("a",)
    assert role.send == ("c",)
    assert role.types["position"].shape == ("batch",)
    assert role.ring == ("a", "b", "c")
    assert not role.is_source
    assert source_role(bundle.parents[1]).device == "a"


def set_key(*path: str | int, to: Any) -> Change:
    def change(raw: Any) -> None:
        for key in path[:-1]:
            raw = raw[key]
        raw[path[-1]] = to

    return change


def drop(key: str) -> Change:
    return lambda raw: raw.pop(key)


HUGE = 10**400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("format", to="partc-build/9"), "format: 'partc-build/9' cannot be read"),
        (set_key("format", to="zip"), "format: 'zip' cannot be read"),
        (drop("format"), "format: None cannot be read"),
        (set_key("plan_id", to="abc"), "plan_id: expected `str` matching regex"),
        (set_key("plan_id", to="a" * 64 + "\n"), "plan_id: expected `str` of length <= 64"),
        (set_key("device", to="b\n"), "device: expected `str` matching regex"),
        (set_key("extra", to=1), "object contains unknown field `extra`"),
        (drop("files"), "object missing required field `files`"),
        (set_key("model", "task", to="poetry"), "model.task: expected `str` matching regex"),
        (set_key("model", "max_batch", to=0), "model.max_batch: expected `int` >= 1"),
        (set_key("model", "max_batch", to=True), "model.max_batch: expected `int`, got `bool`"),
        (set_key("model", "max_batch", to=1.0), "model.max_batch: expected `int`, got `float`"),
        (set_key("model", "max_batch", to=HUGE), "model.max_batch: expected `int` <="),
        (set_key("model", "prompt_steps", to=[[4, 5], [1, 2]]), "model.prompt_steps: expected sizes from 1 to"),
        (set_key("model", "prompt_steps", to=[[1, 2], [2**40, 3]]), "prompt_steps: expected sizes from 1 to"),
        (set_key("model", "prompt_steps", to=[[1, 2**30]]), "model.prompt_steps: expected costs below 2**30"),
        (set_key("model", "step_tokens", to=[[16, 2000]]), "model.step_tokens: expected sizes from 2 to 8"),
        (set_key("model", "step_tokens", to=[[1, 1000]]), "model.step_tokens: expected sizes from 2 to"),
        (set_key("model", "step_tokens", to=[[4, 1300], [2, 1100]]), "step_tokens: expected sizes from 2 to"),
        (set_key("model", to=[]), "model: expected `object`, got `array`"),
        (set_key("values", "hidden_1", "dtype", to="complex"), "values.hidden_1: dtype: 'complex' is unknown"),
        (set_key("values", "hidden_1", "shape", to=["batch", "sequence +"]), "is not a size"),
        (set_key("values", "hidden_1", "shape", to=["batch", -1]), "values[...].shape[1]: expected `int` >= 0"),
        (set_key("values", "hidden_1", "shape", to=["batch", HUGE]), "values[...].shape[1]: expected `int` <="),
        (set_key("values", "hidden_1", "shape", to=["(" * 5000 + "batch" + ")" * 5000]), "is not a size"),
        (set_key("values", "hidden_1", "shape", to=["batch", "width"]), "'width' has no largest value"),
        (set_key("submodules", 0, "file", to="other.onnx"), "not among the files"),
        (set_key("submodules", 0, "covers", to=[3, 1]), "covers of part_1 goes backwards"),
        (set_key("submodules", 0, "states", 0, "kind", to="halves"), "invalid enum value 'halves'"),
        (set_key("submodules", 0, "states", 0, "layout", to="rows"), "invalid enum value 'rows'"),
        (set_key("submodules", 0, "states", 0, "layout", to="panels"), "null on cpu holds no panels"),
        (set_key("engine", "kind", to="gpu"), "engine.library: is there just where the kind is plan or gpu"),
        (set_key("files", to={"../x": {"sha256": "0" * 64, "bytes": 1}}), "does not stay in the folder"),
        (set_key("files", "part_1.txt", "bytes", to=-1), "files[...].bytes: expected `int` >= 0"),
    ],
)  # fmt: skip
def test_builds_that_are_refused(bundle: Path, change: Change, message: str) -> None:
    raw = content(bundle, "build.json")
    change(raw)
    with pytest.raises(BundleError) as caught:
        parse_build(resealed(raw))
    assert message in caught.value.message
    assert caught.value.where == "build.json"
    assert "compile" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("format", to="partc-placement/3"), "format: 'partc-placement/3' cannot be read"),
        (set_key("epoch", to=-1), "epoch: expected `int` >= 0"),
        (set_key("epoch", to=True), "epoch: expected `int`, got `bool`"),
        (set_key("extra", to=1), "object contains unknown field `extra`"),
        (set_key("source", to="nobody"), "source: 'nobody' is not in the ring"),
        (set_key("ring", to=["a", "b", "c", "c"]), "ring: a device stands twice"),
        (set_key("ring", to=[]), "ring: expected `array` of length >= 1"),
        (set_key("ring", to=["a", "b"]), "programs.decode: 'c' is not in the ring"),
        (set_key("addresses", to={}), "addresses: 'a' is missing"),
        (set_key("programs", "warmup", to={}), "expected `str` matching regex"),
        (set_key("programs", "decode", to={}), "programs.decode: 'a' is missing"),
        (set_key("programs", to={}), "stages and programs are for prefill"),
        (set_key("stages", "decode", 0, "devices", to=["nobody"]), "stages.decode[0]: 'nobody' is not in"),
        (set_key("stages", "decode", 0, "share", to="heads"), "a stage is shared where it has several devices"),
        (set_key("mirrors", to={"part_1": "nobody"}), "mirrors.part_1: 'nobody' is not among the addresses"),
        (set_key("predicted", "decode_s", to=1e300), "predicted[...]: expected `float` <= 1000000.0"),
        (set_key("predicted", "decode_s", to=HUGE), "predicted[...]: number out of range"),
        (set_key("predicted", "decode_s", to=-1), "predicted[...]: expected `float` >= 0.0"),
        (set_key("predicted", "warmup_s", to=1), "predicted: 'warmup_s' is unknown"),
    ],
)  # fmt: skip
def test_placements_that_are_refused(bundle: Path, change: Change, message: str) -> None:
    raw = content(bundle, "placement.json")
    change(raw)
    with pytest.raises(BundleError) as caught:
        parse_placement(resealed(raw))
    assert message in caught.value.message
    assert caught.value.where == "placement.json"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("recv hidden_1", "hop hidden_1", "unknown instruction 'hop'"),
        ("recv hidden_1 from a", "recv hidden_1 from nobody", "'nobody' is not another device of the ring"),
        (
            "recv hidden_1 from a",
            "recv hidden_2 from a",
            "waits for hidden_2 from a, which does not send just",
        ),
        ("send hidden_2 to c", "send hidden_2 to c\nemit hidden_2", "only the source emits"),
        ("(hidden_1, position)", "(hidden_1, hidden_3)", "'hidden_3' is neither given, made nor received"),
        ("(hidden_1, position)", "(hidden_1)", "the sub-module has other inputs or outputs"),
        ("run part_1", "run part_9", "'part_9' is not a sub-module of this device"),
    ],
)
def test_programs_that_are_refused(bundle: Path, old: str, new: str, message: str) -> None:
    programs = content(bundle, "placement.json")["programs"]
    programs["prefill"]["b"] = programs["prefill"]["b"].replace(old, new)
    reseal(bundle / "placement.json", programs=programs)
    with pytest.raises(BundleError) as caught:
        load_role(bundle)
    assert message in caught.value.message
    assert "placement.json: programs.prefill.b" in (caught.value.where or "")


def test_values_without_a_type_are_refused(bundle: Path) -> None:
    reseal(bundle / "build.json", values={})
    with pytest.raises(BundleError, match="the type of 'hidden_1' is not among values"):
        load_role(bundle)


def test_what_is_sent_on_of_a_placement_that_leaves_out_defaults(bundle: Path) -> None:
    """Its id has to fit our text, which spells them out."""
    raw = content(bundle, "placement.json")
    plain = parse_placement(raw)
    for stages in raw["stages"].values():
        for stage in stages:
            del stage["share"]
    found = parse_placement(resealed(raw))
    assert found == plain
    assert parse_placement(placement_json(found)) == found


def test_a_build_and_a_placement_that_do_not_belong_together(bundle: Path, tmp_path: Path) -> None:
    reseal(bundle / "placement.json", plan_id="0" * 64)
    with pytest.raises(BundleError, match=r"build.json and placement.json are of different builds"):
        load_role(bundle)


def test_a_device_without_an_address(bundle: Path) -> None:
    reseal(bundle / "build.json", device="d")
    with pytest.raises(BundleError, match=r"'d' is not among the addresses of placement\.json"):
        load_role(bundle)


def test_an_idle_device_holds_what_it_does_not_run(bundle: Path) -> None:
    addresses = content(bundle, "placement.json")["addresses"]
    reseal(bundle / "build.json", device="d")
    reseal(bundle / "placement.json", addresses={**addresses, "d": None})
    role = load_role(bundle)
    assert list(role.submodules) == ["part_1"]
    assert role.running == role.receive == role.send == ()
    assert set(role.programs) == {"prefill", "decode", "replay"}
    assert not any(role.programs.values())


@pytest.mark.parametrize("file", ["build.json", "placement.json"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1, "format": 2}', "the key 'format' stands twice in one object"),
        ('{"format": NaN}', "NaN is not a number"),
        ('{"format": -Infinity}', "-Infinity is not a number"),
        ('{"format": 1e999}', "1e999 is too large"),
        ('{"format": 1' + "0" * 5000 + "}", "is too large"),
        ('{"format": ' + "[" * 100_000, "nested too deeply"),
        ('{"format": ' * 100_000, "nested too deeply"),
        ("[]", "not a JSON object"),
        ("", "not valid JSON"),
    ],
)  # fmt: skip
def test_json_that_is_refused(bundle: Path, file: str, text: str, message: str) -> None:
    (bundle / file).write_text(text)
    with pytest.raises(BundleError) as caught:
        load_role(bundle)
    assert message in caught.value.message
    assert str(bundle / file) in (caught.value.where or "")
    assert caught.value.hint


def test_numbers_as_large_as_texts_may_be(bundle: Path) -> None:
    """10^400 is a whole number to JSON, and no size to us."""
    text = (bundle / "placement.json").read_text().replace('"decode_s": 0.01', f'"decode_s": {HUGE}')
    (bundle / "placement.json").write_text(text)
    with pytest.raises(BundleError):
        load_role(bundle)


@pytest.mark.parametrize("file", ["build.json", "placement.json"])
def test_files_that_are_no_text(bundle: Path, file: str) -> None:
    (bundle / file).write_bytes(b"\xff\xfe")
    with pytest.raises(BundleError, match="this is text in UTF-16"):
        load_role(bundle)
    (bundle / file).unlink()
    (bundle / file).mkdir()
    with pytest.raises(BundleError, match="is a folder, not a file"):
        load_role(bundle)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("file", ["build.json", "placement.json", "part_1.txt"])
def test_files_that_may_not_be_read(bundle: Path, file: str) -> None:
    (bundle / file).chmod(0)
    with pytest.raises(BundleError, match="cannot be read: Permission denied") as caught:
        load(bundle)
    assert caught.value.hint


@pytest.mark.parametrize(("file", "key"), [("build.json", "digest"), ("placement.json", "placement_id")])
def test_a_file_without_its_digest(bundle: Path, file: str, key: str) -> None:
    raw = content(bundle, file)
    del raw[key]
    (bundle / file).write_text(canonical_json(raw))
    with pytest.raises(BundleError, match=f"missing required field `{key}`"):
        load_role(bundle)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\0b", "a\\b", "", "."])
def test_files_stay_in_the_folder(bundle: Path, name: str) -> None:
    raw = content(bundle, "build.json")
    raw["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    with pytest.raises(BundleError, match="does not stay in the folder"):
        parse_build(resealed(raw))


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle") as caught:
        load_role(tmp_path)
    assert caught.value.hint == "--bundle takes the folder of one device: build/devices/NAME"
    with pytest.raises(BundleError, match="not a build") as caught:
        source_role(tmp_path)
    assert caught.value.hint == f"partc compile MODEL --target DEVICES -o {tmp_path}"


def test_a_bundle_of_format_1(bundle: Path) -> None:
    (bundle / "build.json").rename(bundle / "manifest.json")
    with pytest.raises(BundleError, match="a bundle of format 1") as caught:
        load_role(bundle)
    assert "partc compile MODEL --target DEVICES" in (caught.value.hint or "")
    shutil.rmtree(bundle.parent / "a")
    with pytest.raises(BundleError, match="a bundle of format 1"):
        source_role(bundle.parents[1])


def test_no_placement(bundle: Path) -> None:
    (bundle / "placement.json").unlink()
    with pytest.raises(BundleError, match="the file is missing"):
        load_role(bundle)


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


@pytest.mark.parametrize("file", ["build.json", "placement.json"])
def test_every_flipped_byte_of_the_description_is_found(tmp_path: Path, file: str) -> None:
    """But for addresses, which may be changed by hand: a device that moves computes the same."""
    bundle = language_model("null").write(tmp_path / "build") / "devices" / "b"
    path = bundle / file
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
    """White space may change without a change of meaning, and addresses may change."""
    try:
        return _meaning(bad) == _meaning(good)
    except ValueError:
        return False


def _meaning(text: bytes) -> Json:
    raw = dict(json.loads(text))
    addresses = raw.pop("addresses", {})
    assert set(addresses) in ({"a", "b", "c"}, set()) or raw.update(odd=True) is None
    return raw


def test_addresses_may_be_changed_by_hand(bundle: Path) -> None:
    raw = content(bundle, "placement.json")
    raw["addresses"]["a"] = "10.0.0.7:4000"
    (bundle / "placement.json").write_text(json.dumps(raw))
    assert load_role(bundle).addresses["a"] == "10.0.0.7:4000"


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


@pytest.mark.parametrize("name", ["build.json", "placement.json", "keys"])
def test_linked_descriptions_and_keys_are_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    (bundle / name).rename(tmp_path / "elsewhere")
    (bundle / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="symbolic link"):
        load(bundle)


def test_the_digest_is_that_of_the_text(bundle: Path) -> None:
    """As docs/bundle.md says; so it can be checked without knowing how Python escapes characters."""
    raw = content(bundle, "build.json")
    raw["model"]["name"] = "模型 é"
    del raw["digest"]
    text = canonical_json(raw)
    assert "模型 é" in text
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert parse_build({**raw, "digest": digest}).model.name == "模型 é"


def test_half_a_surrogate_pair(bundle: Path) -> None:
    path = bundle / "build.json"
    path.write_text(path.read_text().replace('"tiny"', '"tiny\\ud800"'))
    with pytest.raises(BundleError, match="half of a surrogate pair"):
        load_role(bundle)


def test_sealed_by_hand(bundle: Path) -> None:
    reseal(bundle / "placement.json", epoch=3)
    assert load_role(bundle).epoch == 3
