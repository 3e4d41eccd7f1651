"""The origin kept beside a build: read as it was written, and reported where it is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.errors import BundleError
from partc.verifier.origin import Build, read_build, read_origin

COMPILE = ["compile", "model.yaml", "--target", "devices.yaml"]


@pytest.fixture
def build(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build of an ONNX graph for devices of target null."""
    assert run(COMPILE) == 0
    capsys.readouterr()
    return small / "build"


def test_it_is_read_as_it_was_written(build: Path) -> None:
    assert read_origin(build).model == read_origin(build, str(build.parent / "model.yaml")).model
    found = read_build(build)
    assert found == Build(found.role, found.device, quantize="none")
    assert found.device["target"] == "null"


def test_a_build_of_which_only_the_model_is_known(build: Path) -> None:
    """The file that `write_origin` leaves where no devices are given."""
    file = build / "runs" / "origin.json"
    file.write_text(json.dumps({"model": json.loads(file.read_text())["model"]}))
    found = read_build(build)
    assert (found.quantize, found.disable, found.others) == (None, (), ())
    shutil.rmtree(file.parent)
    assert read_build(build) == found
    with pytest.raises(BundleError, match="not known"):
        read_origin(build)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("read", [read_origin, read_build])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"model": "mo', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"\xff\xfe", "text in UTF-16"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "no JSON object"),
        (b"{}", "`model` is missing"),
        (b'{"model": 3}', "`model` cannot be 3"),
        (b'{"model": "m", "quantize": []}', r"`quantize` cannot be \[\]"),
        (b'{"model": "m", "disable": null}', "`disable` cannot be null"),
        (b'{"model": "m", "disable": [1]}', r"`disable` cannot be \[1\]"),
        (b'{"model": "m", "devices": []}', r"`devices` cannot be \[\]"),
        (b'{"model": "m", "devices": {"a": 1}}', '`devices` cannot be {"a": 1}'),
        (b'{"model": "m", "devices": {"a": {"speed": 1}}}', "`devices` cannot be"),
    ],
)
def test_a_damaged_file_is_named(
    build: Path, read: Callable[[Path], object], content: bytes, what: str
) -> None:
    file = build / "runs" / "origin.json"
    file.write_bytes(content)
    with pytest.raises(BundleError, match=what) as caught:
        read(build)
    assert str(caught.value.where).startswith(str(file))
    assert "`partc compile` again" in (caught.value.hint or "")


def test_verify_says_so_and_compile_mends_it(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = build / "runs" / "origin.json"
    file.write_text('{"model": "mo')
    for options in ([], ["--model", "model.yaml"]):
        assert run(["verify", "build", *options]) == 1
        shown = capsys.readouterr().err
        assert "build/runs/origin.json" in shown
        assert "Traceback" not in shown
    assert run(COMPILE) == 0
    assert read_build(build).quantize == "none"
