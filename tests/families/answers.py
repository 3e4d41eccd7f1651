"""Answers of a ring compared with those that it must give, request by request; negative controls must change them.

For models that read more than the tokens of a prompt: a source, a picture, a sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from partc.config.model import ModelConfig
from partc.ir.graph import Constant, Module, Node, Value
from partc.ir.once import once_nodes
from partc.ir.text import parse_module
from partc.verifier.reference import Reference, open_reference
from tests.families.check import CONTROLS, TOLERANCE, compile_ring, devices_file, largest_error, simplified
from tests.families.ring import DirectRing

TOKENS = 24

Request = Any
"""The token ids of a text, the tensors of a sound, or both."""


@dataclass(frozen=True)
class Result:
    """The findings about a family."""

    devices: int
    fault: str = ""
    """What differs; nothing: an empty text."""
    controls: dict[str, bool] = field(default_factory=dict)
    """Control → whether it changed the tokens, as it must."""

    @property
    def counts(self) -> bool:
        """Whether the family is compiled correctly, and the test would have noticed if it were not."""
        return not self.fault and self.devices == 3 and bool(self.controls) and all(self.controls.values())

    @property
    def detail(self) -> str:
        """The reason why it does not count."""
        weak = [name for name, changed in self.controls.items() if not changed]
        cut = "" if self.devices == 3 else f"it is cut for {self.devices} devices"
        return self.fault or cut or f"unchanged without: {', '.join(weak)}"


@dataclass(frozen=True)
class Answers:
    """A ring of three devices, requests to it, and the answers that it must give."""

    text: str
    """The simplified model."""
    folder: Path
    one_device: Path
    """A devices.yaml of a single one."""
    ring: DirectRing
    requests: list[Request]
    expected: list[list[int]]
    reference: Reference | None
    """transformers' model; None where the uncut model of the same quantisation gave the answers."""

    def fault(self, compared: int | None = None) -> str:
        """What is wrong with the tokens, alone and in flight at once, or with the numbers; nothing: an empty text.

        `compared`: how many of the requests have their numbers compared, from the first on; None: all.
        """
        ring, expected = self.ring, self.expected
        begun = ring.requests
        found = generate(ring, self.requests)
        if found != expected:
            same = [
                sum(a == b for a, b in zip(left, right, strict=True))
                for left, right in zip(found, expected, strict=True)
            ]
            return f"{same} of {TOKENS} tokens equal"
        if self.reference is not None:
            pairs = list(zip(self.requests, expected, strict=True))[:compared]
            error = max(
                largest_error(ring.trace[begun + number], self.reference, request, right)
                for number, (request, right) in enumerate(pairs, start=1)
            )
            if error > TOLERANCE:
                return f"tokens equal, but an error of {error:.1e}"
        return "" if answer(ring, self.requests) == expected else "together, other tokens"

    def controls(self, unread: str) -> dict[str, bool]:
        """Control → whether it changed the tokens, as it must.

        `unread`: name of the control in which the decoder gets zeros from the encoder.
        """
        module = parse_module(self.text)
        spoilt: dict[str, Callable[[Module], None]] = {unread: without_source}
        spoilt |= {name: control.mutate for name, control in CONTROLS.items() if control.applies(module)}
        return {name: self._spoilt(name, mutate) != self.expected for name, mutate in spoilt.items()}

    def _spoilt(self, name: str, mutate: Callable[[Module], None]) -> list[list[int]]:
        ring = compile_ring(self.text, self.folder / name.replace(" ", "-"), self.one_device, mutate)
        return generate(ring, self.requests)


def prepare(
    config: ModelConfig,
    folder: Path,
    target: str,
    quantize: str | None,
    draw: Callable[[DirectRing], list[Request]],
) -> Answers:
    """Compile a model for three devices, and have the right answers to drawn requests.

    Raises:
        UserError: partc refuses the model.
    """
    text = simplified(config, quantize)
    ring = compile_ring(text, folder / "build", devices_file(folder, 3, (target,)))
    requests = draw(ring)
    one_device = devices_file(folder, 1, (target,))
    if quantize is None:
        reference = open_reference(config, ring.roles[ring.source].model.start_tokens)
        expected = [reference.generate(request, TOKENS) for request in requests]
        return Answers(text, folder, one_device, ring, requests, expected, reference)
    expected = generate(compile_ring(text, folder / "uncut", one_device), requests)
    return Answers(text, folder, one_device, ring, requests, expected, None)


def generate(ring: DirectRing, requests: Sequence[Request]) -> list[list[int]]:
    """`TOKENS` greedy tokens for every request, one after the other."""
    return [answer(ring, [request])[0] for request in requests]


def answer(ring: DirectRing, requests: Sequence[Request]) -> list[list[int]]:
    """The tokens of requests that are in flight at once."""
    if isinstance(requests[0], dict):
        return [batch[0] for batch in ring.generate_from(requests, TOKENS)]
    return [batch[0] for batch in ring.generate_together([[request] for request in requests], TOKENS)]


def without_source(module: Module) -> None:
    """The decoder reads zeros instead of what the encoder makes."""
    graph = module.graph
    once = once_nodes(graph)
    for node in list(graph.nodes):
        if node in once:
            continue
        for place, value in enumerate(node.inputs):
            made = value is not None and value.producer in once and value.dtype == "f32"
            if made and value is not None and len(value.shape or ()) > 1:
                zero = Constant(f"{value.name}.{node.name}.zero", "f32", (), array=np.zeros((), np.float32))
                product = Node(
                    "Mul", [value, zero], [Value(f"{value.name}.{node.name}.none", "f32", value.shape)]
                )
                graph.nodes.insert(graph.nodes.index(node), product)
                node.inputs[place] = product.outputs[0]
