"""docs/python.md: its blocks run, one after the other, in a reader's folder; and it names all that is public."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import partc
from tests.manuals.blocks import ROOT, blocks_of
from tests.manuals.surroundings import make_folder

MANUAL = ROOT / "docs" / "python.md"
LIGHT = ("click", "msgspec", "numpy", "onnx", "onnxruntime", "torch", "transformers", "tvm", "yaml", "zmq")


@pytest.mark.in_turns(8)
@pytest.mark.hf
@pytest.mark.ort
@pytest.mark.serve
def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_folder(tmp_path).folder)
    names = {"__name__": "reader"}
    for block in blocks_of(MANUAL):
        if block.language == "python" and not block.reason:
            exec(compile(block.text, f"docs/python.md:{block.line}", "exec"), names)


def test_all_that_is_public_is_in_the_manual() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    hidden = {"Generation", "Piece"}  # nobody makes them: they are what `generate` and `stream` give
    assert [name for name in partc.__all__ if name not in text and name not in hidden] == []


@pytest.mark.parametrize("name", partc.__all__)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(partc, name)
    assert inspect.getdoc(thing)
    for member, value in inspect.getmembers(thing, inspect.isfunction):
        if not member.startswith("_"):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compiel'"):
        partc.compiel  # noqa: B018
    assert set(partc.__all__) <= set(dir(partc))


def test_importing_is_light() -> None:
    script = f"import partc, sys; print([name for name in {LIGHT!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


SIGNATURES = {
    "compile": "(model, devices, output, *, strategy, cut_rule, passes, disable, cache, progress)",
    "plan": "(model, devices, *, strategy, cut_rule, cache, progress)",
    "verify": "(build, prompts, tokens, *, model, text, text_tokens, cost, drafts, runner, progress)",
    "Build": "(folder)",
    "Ring": "(build, *, connect, insecure, runner, restart, balance, chat_template, **settings)",
    "Ring.generate": "(self, prompt, max_new_tokens, **options)",
    "Ring.stream": "(self, prompt, max_new_tokens, **options)",
    "Ring.chat": "(self, messages, max_new_tokens, template, **options)",
    "Ring.submit": "(self, prompts, *, inputs, **options)",
    "AsyncRing.generate": "(self, prompt, max_new_tokens, **options)",
}
"""What holds within a minor version: names may be added at the end."""


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_stay(name: str) -> None:
    thing = partc
    for part in name.split("."):
        thing = getattr(thing, part)
    found = inspect.signature(thing)  # type: ignore[arg-type]
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    assert str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty)) == SIGNATURES[name]
