"""Models whose blocks several devices share: the tokens and values of the ring against transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partc.config.model import CheckpointFolder, ModelConfig
from partc.format.dtypes import Array
from partc.format.program import Add
from partc.ir.graph import Module
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.verify.compare import join_steps
from partc.verify.reference import Reference, open_reference
from tests.families.check import (
    CHUNK,
    MAX_SEQUENCE,
    compile_ring,
    devices_file,
    sample_prompts,
    save_tiny,
    simplified,
)
from tests.families.ring import DirectRing
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort]
TOKENS = 64
TOLERANCE = 1e-4
LAYERS = {"llama": "num_hidden_layers", "gpt2": "n_layer"}


def configured(family: str, folder: Path) -> ModelConfig:
    """Two layers of a tiny model."""
    save_tiny(tiny_config(family) | {LAYERS[family]: 2}, folder / "checkpoint")
    return ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=2, max_requests=3
    )


def imported(family: str, folder: Path) -> tuple[str, Reference]:
    """The simplified IR, and transformers' model."""
    config = configured(family, folder)
    return simplified(config), open_reference(config)


def ring_of(text: str, folder: Path, count: int, spoil: Callable[[Module], None] | None = None) -> DirectRing:
    """The ring of a group of `count` devices; `spoil` changes the programs."""
    module, devices = parse_module(text), devices_file(folder, count)
    build = folder / f"build{count}{spoil.__name__ if spoil else ''}"
    steps = default_pipeline(devices, "megatron", "eq1+frontier", build, ("cut", "measure", "place", "emit"))
    split = [step.name for step in steps].index("split-graph") + 1
    run_passes(module, steps[:split])
    if spoil:
        spoil(module)
    run_passes(module, steps[split:])
    return DirectRing(build)


def prompt_error(ring: DirectRing, request: int, prompt: list[int], reference: Reference) -> float:
    """Largest difference of the logits behind a prompt."""
    right = reference.outputs({"input_ids": np.array([prompt])})["logits"][:, -1:]
    return float(np.abs(logits_behind(ring, request)[:, :1] - right).max())


def logits_behind(ring: DirectRing, request: int) -> Array:
    """The logits of a request, one behind the other."""
    crossed = join_steps(ring.trace[request])
    (logits,) = (array for (_, peer, device), array in crossed.items() if peer == device)
    return logits


def drop_a_share(module: Module) -> None:
    """The first sum of the source leaves out what came before it."""
    change_first_sum(module, lambda item: Add(item.terms[1:], item.total))


def add_another_value(module: Module) -> None:
    """The first sum of the source adds the other slice in the place of its own."""
    change_first_sum(module, lambda item: Add((item.terms[0], item.terms[1][:-1] + "1"), item.total))


def change_first_sum(module: Module, change: Callable[[Add], Add]) -> None:
    assert module.parts is not None
    source = module.parts[0]
    for phase, program in source.programs.items():
        at = next(place for place, item in enumerate(program) if isinstance(item, Add))
        item = program[at]
        assert isinstance(item, Add)
        source.programs[phase] = (*program[:at], change(item), *program[at + 1 :])


@pytest.mark.parametrize(("family", "counts"), [("llama", (3,)), ("gpt2", (2, 3))])
def test_the_tokens_of_a_group_are_those_of_the_whole_model(
    family: str, counts: tuple[int, ...], tmp_path: Path
) -> None:
    """Three devices have more members than the tiny llama has groups of heads: one has no share of its attention."""
    text, reference = imported(family, tmp_path)
    prompts = sample_prompts(97)
    expected = [reference.generate(prompt, TOKENS) for prompt in prompts]
    for count in counts:
        ring = ring_of(text, tmp_path, count)
        assert [ring.generate([prompt], TOKENS)[0] for prompt in prompts] == expected
        assert prompt_error(ring, 1, prompts[0], reference) < TOLERANCE
        assert prompt_error(ring, 3, prompts[2], reference) < TOLERANCE
        together = ring.generate_together([[prompt] for prompt in prompts], TOKENS)
        assert [batch[0] for batch in together] == expected
        assert ring.generate(prompts[1:], TOKENS) == expected[1:]
    chunked = DirectRing(ring.build, CHUNK)
    assert chunked.generate([prompts[2]], TOKENS)[0] == expected[2]
    if family == "gpt2":
        for spoil in (drop_a_share, add_another_value):
            ring = ring_of(text, tmp_path, 2, spoil)
            ring.generate([prompts[1]], 1)
            assert prompt_error(ring, 1, prompts[1], reference) > 1e-2


@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_a_quantised_group_is_the_uncut_model_of_the_same_quantisation(
    precision: str, tmp_path: Path
) -> None:
    """Blocks of int4 are whole in a share, activations too: only the order of sums differs. In int8 each share rounds
    its part of a row of activations with a scale of its own, which is finer: logits are as near to the original as
    those of the uncut model. Not so where a share is left out.
    """
    config = configured("llama", tmp_path)
    text = simplified(replace(config, quantize=Quantization(precision, precision, precision, block=16)))
    reference, prompts = open_reference(config), sample_prompts(97)
    uncut = compile_ring(text, tmp_path / "uncut", devices_file(tmp_path, 1))
    expected = [uncut.generate([prompt], 32)[0] for prompt in prompts]
    for count in (2, 3):
        ring = ring_of(text, tmp_path, count)
        tokens = [ring.generate([prompt], 32)[0] for prompt in prompts]
        if precision == "int4":
            assert tokens == expected
        for request, prompt in enumerate(prompts, 1):
            lost = prompt_error(uncut, request, prompt, reference)
            assert prompt_error(ring, request, prompt, reference) < 1.5 * lost
            assert lost > 100 * TOLERANCE
    right = logits_behind(uncut, 3)[:, :1]
    ring = ring_of(text, tmp_path, 2, drop_a_share)
    ring.generate([prompts[2]], 1)
    assert np.abs(logits_behind(ring, 1) - right).max() > 0.1
