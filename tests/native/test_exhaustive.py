"""A new action or message does not compile before the C++ core does something with it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.compiled import NATIVE

pytestmark = pytest.mark.native

_VARIANTS = {
    "an action": ("core/actions.hpp", "using Action = std::variant<", "struct Probe {};\n"),
    "a message": ("format/messages.gen.hpp", "using AnyMessage = std::variant<", "struct Probe {};\n"),
}
_DISPATCH = {
    "an action": ("core/device/device.cpp", "core/device/journal.cpp"),
    "a message": ("core/device/inbox.cpp",),
}


def compiles(source: Path, file: str) -> bool:
    command = ["g++", "-std=c++20", "-fsyntax-only", "-I", str(source), str(source / file)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("kind", _VARIANTS)
def test_one_more_kind_does_not_compile(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(NATIVE / "src", source)
    header, variant, probe = _VARIANTS[kind]
    text = (source / header).read_text(encoding="utf-8")
    assert variant in text
    for file in _DISPATCH[kind]:
        assert compiles(source, file), f"{file} compiles as it is"
    changed = text.replace(variant, f"{probe}{variant}Probe, ")
    (source / header).write_text(changed, encoding="utf-8")
    for file in _DISPATCH[kind]:
        assert not compiles(source, file), f"{file} drops {kind} without a word"
