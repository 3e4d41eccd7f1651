"""Compiled groups: every family of the list on 2, 3 and 4 devices that share its blocks in uneven parts.

`python -m tests.families.groups` runs all of them and prints a table; names of families run these alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.format.plan import SharedStage
from partc.ir.graph import Module
from partc.ir.text import parse_module
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.pipeline.sharing import SHARES_ALL
from partc.planner.groups.algorithm1 import apportion
from partc.verifier.reference import Reference, open_reference
from tests.families.check import (
    MAX_SEQUENCE,
    TOLERANCE,
    devices_file,
    relative_error,
    sample_prompts,
    save_tiny,
    simplified,
)
from tests.families.ring import DirectRing
from tests.families.shares import SHARES
from tests.families.test_encoders import ENCODERS, saved
from tests.families.tiny import tiny_config

DECODERS = ("gpt2", "opt", "llama", "gemma2", "phi", "gpt_neox")
"""Fused q-k-v and biases; learned positions, and MLPs with rows and batch in one axis; grouped queries; soft caps and
windows; attention beside the MLP."""
FAMILIES = ("distilbert", "bert", *DECODERS)
TOKENS = 64
ROWS = (1, 2, 7, 13)
"""Lengths of the inputs of encoders: fewer than devices, and such as they do not divide equally."""


@dataclass(frozen=True)
class Cell:
    """One family on one group."""

    family: str
    strategy: str
    weights: tuple[int, ...]
    identical: int | None
    """Tokens that are those of transformers, from the first on; None for encoders."""
    tokens: int | None
    error: float
    """Largest difference of logits or outputs from those of transformers, where the largest of these is more than 1
    in proportion to it."""

    @property
    def right(self) -> bool:
        return self.identical == self.tokens and self.error < TOLERANCE


def grouped(text: str, folder: Path, strategy: str, weights: Sequence[int]) -> DirectRing:
    """The ring of a group whose units are divided in proportion to `weights`; rows are divided equally."""
    module, count = parse_module(text), len(weights)
    build = folder / f"{strategy}-{'-'.join(map(str, weights))}"
    steps = default_pipeline(
        devices_file(folder, count), strategy, "eq1+frontier", build, ("cut", "measure", "place", "emit")
    )
    split = [step.name for step in steps].index("split-graph")
    run_passes(module, steps[:split])
    _divide(module, weights)
    run_passes(module, steps[split:])
    return DirectRing(build)


def _divide(module: Module, weights: Sequence[int]) -> None:
    """Give the devices of the plan other shares."""
    assert module.plan is not None

    def other(stage: SharedStage) -> SharedStage:
        if stage.share not in ("heads", "columns"):
            return stage
        return replace(stage, shares=tuple(apportion(sum(stage.shares), weights)))

    answer = module.plan.answer
    phases = {phase: tuple(map(other, stages)) for phase, stages in answer.phases.items()}
    first = next(iter(phases.values()))
    module.plan = replace(module.plan, answer=replace(answer, phases=phases, stages=first))


def check_decoder(
    family: str, folder: Path, strategies: Sequence[str], shares: Sequence[Sequence[int]]
) -> list[Cell]:
    """Two layers: greedy tokens behind prompts of 1, 7 and 33 tokens, and the logits behind the prompts."""
    fields = tiny_config(family)
    layers = {key: 2 for key in ("num_hidden_layers", "n_layer") if key in fields}
    kinds = {"layer_types": fields["layer_types"][:2]} if "layer_types" in fields else {}
    save_tiny(fields | layers | kinds, folder / "checkpoint")
    config = ModelConfig(CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_requests=3)
    reference, text = open_reference(config), simplified(config)
    prompts = sample_prompts(fields.get("vocab_size", 97))
    expected = [reference.generate(prompt, TOKENS) for prompt in prompts]
    cells = []
    for strategy in strategies:
        for weights in shares:
            ring = grouped(text, folder, strategy, weights)
            found = [ring.generate([prompt], TOKENS)[0] for prompt in prompts]
            same = sum(_same(*pair) for pair in zip(found, expected, strict=True))
            error = max(_error(ring, n, prompt, reference) for n, prompt in enumerate(prompts, 1))
            cells.append(Cell(family, strategy, tuple(weights), same, TOKENS * len(prompts), error))
    return cells


def check_encoder(
    family: str, folder: Path, strategies: Sequence[str], shares: Sequence[Sequence[int]]
) -> list[Cell]:
    """Two layers, sentences of `ROWS` tokens."""
    fields = {**ENCODERS[family], ("n_layers" if family == "distilbert" else "num_hidden_layers"): 2}
    network = saved(family, fields, "feature-extraction", folder / "checkpoint")
    config = ModelConfig(CheckpointFolder(folder / "checkpoint"), task="feature-extraction", max_sequence=32)
    text, rng = simplified(config), np.random.default_rng(0)
    cells = []
    for strategy in strategies:
        for weights in shares:
            ring, errors = grouped(text, folder, strategy, weights), []
            for rows in ROWS:
                inputs = {name: rng.integers(0, 2, (1, rows)) for name in ring.roles[ring.source].inputs}
                inputs = {name: inputs[name] for name in ("input_ids", "token_type_ids") if name in inputs}
                inputs["input_ids"] = rng.integers(3, 90, (1, rows))
                errors.append(_encoder_error(ring, network, inputs))
            cells.append(Cell(family, strategy, tuple(weights), None, None, max(errors)))
    return cells


def _encoder_error(ring: DirectRing, network: Any, inputs: Mapping[str, Array]) -> float:
    with torch.no_grad():
        right = network(**{name: torch.from_numpy(value) for name, value in inputs.items()})
    found = ring.outputs(inputs, (inputs["input_ids"].shape[1],))
    return max(relative_error(array, right[name].numpy()) for name, array in found.items())


def _error(ring: DirectRing, request: int, prompt: list[int], reference: Reference) -> float:
    logits = next(
        array
        for crossing in sorted(ring.trace[request], key=lambda item: item.step)
        for array in crossing.values.values()
        if crossing.peer == crossing.device
    )
    return relative_error(logits, reference.outputs({"input_ids": np.array([prompt])})["logits"][:, -1:])


def _same(found: Sequence[int], right: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(found, right, strict=True)) if a != b), len(right))


def check(
    family: str,
    folder: Path,
    strategies: Sequence[str] = SHARES_ALL,
    shares: Sequence[Sequence[int]] = SHARES,
) -> list[Cell]:
    """All groups of a family."""
    compare = check_decoder if family in DECODERS else check_encoder
    return compare(family, folder, strategies, shares)


def main(families: Sequence[str]) -> int:
    """The table; 1 where a cell is wrong."""
    cells: list[Cell] = []
    print(f"{'family':12}{'strategy':20}{'shares':12}{'tokens':>14}{'error':>10}")
    for family in families or FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            for cell in check(family, Path(folder)):
                cells.append(cell)
                tokens = "-" if cell.tokens is None else f"{cell.identical} of {cell.tokens}"
                shares = ":".join(map(str, cell.weights))
                mark = "" if cell.right else "  WRONG"
                print(
                    f"{family:12}{cell.strategy:20}{shares:12}{tokens:>14}{cell.error:>10.1e}{mark}",
                    flush=True,
                )
    right = sum(cell.right for cell in cells)
    same = sum(cell.identical or 0 for cell in cells)
    every = sum(cell.tokens or 0 for cell in cells)
    largest = max(cell.error for cell in cells)
    print(
        f"{right} of {len(cells)} groups right; {same:,} of {every:,} tokens identical; largest error {largest:.1e}"
    )
    return 0 if right == len(cells) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
