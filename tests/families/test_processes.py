"""Tiny families on target tvm, cut in three: rings of native runners and mixed rings give the tokens of the model.

In full precision transformers says what these are, in int4 the same model on one device (`quantized.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.verifier.reference import open_reference
from tests.families.check import (
    MAX_SEQUENCE,
    compile_ring,
    devices_file,
    sample_prompts,
    save_tiny,
    simplified,
)
from tests.families.quantized import generate, import_tiny
from tests.families.test_required import REQUIRED
from tests.families.tiny import tiny_config
from tests.native.compiled import native_runner
from tests.runtime.runners import IN_PYTHON, made

pytestmark = [pytest.mark.hf, pytest.mark.tvm, pytest.mark.native]

FAMILIES = (*REQUIRED, "mixtral", "gpt_oss")
TOKENS = 32

Tokens = list[list[int]]


def in_full(family: str, folder: Path) -> tuple[Path, Tokens]:
    """A build, and the right tokens."""
    save_tiny(tiny_config(family), folder / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=1, max_requests=3
    )
    reference = open_reference(config)
    right = [reference.generate(prompt, TOKENS) for prompt in sample_prompts(97)]
    return compile_ring(simplified(config), folder / "build", devices_file(folder, 3, ("tvm",))).build, right


def in_int4(family: str, folder: Path) -> tuple[Path, Tokens]:
    """A build, and the tokens of the model that is not cut."""
    tiny = import_tiny(family, tiny_config(family), folder, "tvm")
    text = tiny.quantized("int4")
    return tiny.ring(text, "cut", 3).build, generate(tiny.ring(text, "uncut", 1), sample_prompts(97))


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    ("family", "compiled"),
    [
        pytest.param(
            family, compiled, marks=() if (family, compiled) == ("gpt2", in_int4) else pytest.mark.slow
        )
        for family in FAMILIES
        for compiled in (in_full, in_int4)
    ],
)
def test_tokens(family: str, compiled: Callable[[str, Path], tuple[Path, Tokens]], tmp_path: Path) -> None:
    build, right = compiled(family, tmp_path)
    for kind in IN_PYTHON:
        with made(kind, native_runner).launch(build) as ring, ring.client() as client:
            requests = [
                client.submit(prompt, max_new_tokens=len(row), ignore_eos=True)
                for prompt, row in zip(sample_prompts(97), right, strict=True)
            ]
            assert [list(request.result().tokens[0]) for request in requests] == right, kind
