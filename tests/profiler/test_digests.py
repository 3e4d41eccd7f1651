"""Sub-modules with the same digest, and with others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partc.ir.digests import submodule_digest
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.ir.workload import workload
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.profiler.work import longest_pattern
from tests.passes.models import decoder

CUT = "find-cuts,form-submodules,coarsen-submodules"


def digests(module: Module, phase: int = 1) -> list[str]:
    if module.submodules is None:
        run_passes(module, load_passes(CUT))
    assert module.submodules is not None
    step = workload(module.info)[phase]
    return [submodule_digest(submodule.nodes, step) for submodule in module.submodules]


def test_identical_layers_have_one_digest() -> None:
    found = digests(decoder("llama"))
    embedding, attention, mlp, *rest = found
    assert len({embedding, attention, mlp}) == 3
    assert rest[0] == attention
    assert len(set(found)) < len(found)


def test_names_and_places_of_weights_do_not_count() -> None:
    text = print_module(decoder("llama"))
    renamed = text.replace("m.safetensors", "other.safetensors").replace("%l0.", "%first.")
    assert renamed != text
    assert digests(parse_module(renamed)) == digests(parse_module(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 1e-05", "epsilon = 0.0001"),
        ("causal = 1", "causal = 0"),
    ],
)
def test_what_is_computed_counts(old: str, new: str) -> None:
    text = print_module(decoder("llama"))
    assert old in text
    before, after = digests(parse_module(text)), digests(parse_module(text.replace(old, new)))
    assert len(before) == len(after)
    assert any(a != b for a, b in zip(before, after, strict=True))
    assert before[0] == after[0], "the embedding is the same"


def test_the_sizes_of_the_phase_count() -> None:
    module = decoder("llama")
    assert set(digests(module, 0)).isdisjoint(digests(module, 1))
    longer = replace(module.info, prompt=module.info.prompt + 1)
    assert set(digests(module, 0)).isdisjoint(
        submodule_digest(s.nodes, workload(longer)[0]) for s in module.submodules or []
    )


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("eABABABABcd", (1, 2, 4)),
        ("eAAAAh", (1, 1, 4)),
        ("eABCDABCDh", (1, 4, 2)),
        ("eAABAABh", (1, 3, 2)),
        ("abc", (0, 3, 1)),
        ("", (0, 1, 1)),
    ],
)
def test_the_longest_pattern(letters: str, expected: tuple[int, int, int]) -> None:
    assert longest_pattern(letters) == expected
