"""A tiny family in int8 or int4: cut in three it gives the tokens of the same quantised model on one device.

transformers cannot say what these tokens are, so the uncut model does; that its graph is right the checks of the same
families in full precision prove. Controls: quantising must change the logits, a spoiled part must change the tokens,
and the wrong compiles of `check.py` must change either: a random model may say one token for ever, whatever its
positions are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.frontend import load_module
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.verifier.report import QUANTIZED_TOLERANCE
from tests.families.check import (
    CONTROLS,
    MAX_SEQUENCE,
    PROMPTS,
    Result,
    compile_ring,
    devices_file,
    sample_prompts,
    save_tiny,
    simplified_text,
)
from tests.families.ring import DirectRing

PRECISIONS = ("int8", "int4")
TOKENS = 32


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint, imported once."""

    family: str
    parameters: int
    folder: Path
    target: str
    module: str = field(repr=False)
    """Its IR as text, not yet simplified."""

    def quantized(self, precision: str) -> str:
        """The IR in that precision before it is cut."""
        return simplified_text(parse_module(self.module), None if precision == "none" else precision)

    def ring(
        self,
        text: str,
        name: str,
        devices: int,
        mutate: Callable[[Module], None] | None = None,
        target: str | None = None,
    ) -> DirectRing:
        """Compiled for so many devices."""
        file = devices_file(self.folder, devices, (target or self.target,))
        return compile_ring(text, self.folder / name, file, mutate)

    @cached_property
    def plain(self) -> DirectRing:
        """The uncut model that is not quantised, after the prompts; on the target that compiles fast."""
        ring = self.ring(self.quantized("none"), "none1", 1, target="ort")
        generate(ring, sample_prompts(97))
        return ring


def import_tiny(family: str, fields: dict[str, Any], folder: Path, target: str = "ort") -> Tiny:
    """Write the checkpoint and import it."""
    parameters = save_tiny(fields, folder / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=2, max_requests=3
    )
    return Tiny(family, parameters, folder, target, print_module(load_module(config)))


def check_quantized(tiny: Tiny, precision: str, wrong: Sequence[str] = ()) -> Result:
    """Compare the cut model with the uncut one; `wrong` names controls of `check.py` to try besides.

    Raises:
        UserError: partc refuses the model.
    """
    text, prompts = tiny.quantized(precision), sample_prompts(97)
    uncut, cut = (tiny.ring(text, f"{precision}{count}", count) for count in (1, 3))
    right = generate(uncut, prompts)
    detail = _difference(cut, uncut, prompts, right)
    controls = {
        "quantised": largest_error(uncut, tiny.plain) > 1e-3,
        "weights": generate(spoiled(cut.build), prompts) != right,
        **{name: _changes(tiny, text, name, uncut, right) for name in wrong},
    }
    return Result(tiny.family, tiny.parameters, not detail, controls, detail)


def _difference(cut: DirectRing, uncut: DirectRing, prompts: list[list[int]], right: list[list[int]]) -> str:
    """The first thing that the cut model does otherwise; empty where there is none."""
    if generate(cut, prompts) != right:
        return "tokens differ"
    if [batch[0] for batch in cut.generate_together([[prompt] for prompt in prompts], TOKENS)] != right:
        return "tokens of requests at once differ"
    batch = _batch(cut, prompts)
    if cut.generate(batch, TOKENS) != uncut.generate(batch, TOKENS):
        return "tokens of a batch differ"
    error = largest_error(cut, uncut)
    return "" if error <= QUANTIZED_TOLERANCE else f"tokens equal, but an error of {error:.1e}"


def _batch(ring: DirectRing, prompts: list[list[int]]) -> list[list[int]]:
    """Two prompts for one request; of equal length where the model takes no others."""
    middle, long = prompts[1:]
    uniform = ring.roles[ring.source].model.uniform_positions
    return [middle, long[: len(middle)]] if uniform else prompts[:2]


def _changes(tiny: Tiny, text: str, control: str, uncut: DirectRing, right: list[list[int]]) -> bool:
    """Whether a wrong compile gives other tokens, or other logits by far."""
    wrong = tiny.ring(text, control, 3, CONTROLS[control].mutate)
    return generate(wrong, sample_prompts(97)) != right or largest_error(wrong, uncut) > QUANTIZED_TOLERANCE


def generate(ring: DirectRing, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens for every prompt alone."""
    return [ring.generate([prompt], TOKENS)[0] for prompt in prompts]


def largest_error(cut: DirectRing, uncut: DirectRing) -> float:
    """Of the logits of the first requests of both, which are the prompts alone, per largest value."""
    found, right = (np.concatenate([step.reshape(-1) for step in logits(ring)]) for ring in (cut, uncut))
    return float(np.abs(found - right).max() / np.abs(right).max())


def logits(ring: DirectRing) -> list[Array]:
    """Of every step of the requests for each prompt alone, which come first."""
    crossings = [item for request in range(1, len(PROMPTS) + 1) for item in ring.trace[request]]
    return [array for item in crossings if item.peer == item.device for array in item.values.values()]


def spoiled(build: Path) -> DirectRing:
    """The ring of a build in which the largest quantised weight of the second device has its rows in another order."""
    (file,) = (build / "devices" / "b" / "weights").iterdir()
    own = {key: tensor for key, tensor in load_file(file).items() if tensor.dtype.kind in "iu"}
    array = own[max(own, key=lambda key: (own[key].nbytes, key))]
    rows = next(axis for axis, size in enumerate(array.shape) if size > 1)
    before = file.read_bytes()
    at = before.index(array.tobytes())
    file.write_bytes(before[:at] + np.flip(array, rows).tobytes() + before[at + array.nbytes :])
    return DirectRing(build)
