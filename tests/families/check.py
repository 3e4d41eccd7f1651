"""One model family, the whole way: a tiny checkpoint on disk, compiled, run as a ring, compared with transformers.

A tiny random model can hide a fault, so a family counts only after negative controls, each a wrong compile or a wrong
engine whose tokens must differ: `CONTROLS`, as far as the model has what they spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.frontend.cache import load_cached
from partc.ir.graph import Constant, Module, Node, Value
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module, print_module
from partc.pipeline.default import PHASES, default_pipeline
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.verifier.compare import beside, join_steps
from partc.verifier.reference import Reference, open_reference
from tests.families.ring import DirectRing
from tests.families.shares import divided, with_a_share_twice
from tests.families.tiny import quiet, tiny_model

PROMPTS = (1, 7, 33)
"""Lengths of the prompts; the longest is longer than every window."""
TOKENS = 64
MAX_SEQUENCE = 112
CHUNK = 5
"""Tokens of a prompt at once where it goes through the ring in parts: neither 7 nor 33 is a multiple."""
TOLERANCE = 1e-4

_FEW_SIZES = "options: {chunks: [], batches: []}"
TARGETS = {
    "ort": "target: ort",
    "tvm": f"target: tvm, {_FEW_SIZES}",
    "opencl": f"target: tvm, arch: host, provider: opencl, {_FEW_SIZES}",
}
"""What devices are compiled for → their lines in devices.yaml. Where code is compiled for every size of step, the least
and the largest are enough to test; OpenCL is that of the machine, such as PoCL."""


@dataclass(frozen=True)
class Result:
    """The findings about a family."""

    family: str
    parameters: int
    equal: bool
    controls: dict[str, bool]
    """Control → whether it changed the tokens, as it must."""
    detail: str = ""

    @property
    def counts(self) -> bool:
        """Whether the family is compiled correctly and the test would have noticed if it were not."""
        return self.equal and all(self.controls.values())


def devices_file(folder: Path, count: int, targets: Sequence[str] = ("ort",)) -> Path:
    """devices.yaml with `count` equal devices that hold anything; the last of `targets` goes on."""
    every = [targets[min(place, len(targets) - 1)] for place in range(count)]
    lines = [
        f"  {name}: {{{TARGETS[target]}, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 4 GiB, threads: 1}}"
        for name, target in zip("abcdefgh", every, strict=False)
    ]
    path = folder / f"devices{count}.yaml"
    text = "\n".join(
        ["source: a", "devices:", *lines, "links:", "  default: {bandwidth: 1 Gbit/s, latency: 1 ms}"]
    )
    path.write_text(text + "\n")
    return path


def save_tiny(fields: dict[str, Any], folder: Path) -> int:
    """Write a tiny checkpoint as transformers writes one; its number of parameters."""
    network = tiny_model(fields)
    with quiet():
        network.save_pretrained(folder)
    return sum(parameter.numel() for parameter in network.parameters())


def check_family(
    family: str,
    fields: dict[str, Any],
    folder: Path,
    cuts: Sequence[int] = (3,),
    target: str = "ort",
    *,
    controls: bool = True,
    shares: Sequence[Sequence[int]] = (),
) -> Result:
    """Compile and compare one family, with its negative controls or without.

    `shares`: its blocks are divided in proportion to each of these as well.

    Raises:
        UserError: partc refuses the model.
    """
    checkpoint = folder / "checkpoint"
    parameters = save_tiny(fields, checkpoint)
    batch = 2 if target == "ort" else 1  # no batch is run, and tvm would compile code for it
    config = ModelConfig(
        CheckpointFolder(checkpoint), max_sequence=MAX_SEQUENCE, max_batch=batch, max_requests=3
    )
    reference = open_reference(config)
    prompts = sample_prompts(fields.get("vocab_size", 97))
    expected = [reference.generate(prompt, TOKENS) for prompt in prompts]
    text = simplified(config)
    for count in cuts:
        ring = compile_ring(text, folder / f"build{count}", devices_file(folder, count, (target,)))
        if fault := _fault(ring, prompts, expected, reference, config):
            return Result(family, parameters, False, {}, fault)
        together = [batch[0] for batch in ring.generate_together([[prompt] for prompt in prompts], TOKENS)]
        if together != expected:
            return Result(family, parameters, False, {}, f"together: {_difference(expected, together)}")
        chunked = DirectRing(ring.build, CHUNK)
        parts = [batch[0] for batch in chunked.generate_together([[prompt] for prompt in prompts], TOKENS)]
        if parts != expected:
            return Result(family, parameters, False, {}, f"prompts in parts: {_difference(expected, parts)}")
    one = devices_file(folder, 1, (target,))
    for name, divide in {"_".join(map(str, weights)): divided(weights) for weights in shares}.items():
        ring = compile_ring(text, folder / f"shares{name}", one, divide)
        if fault := _fault(ring, prompts, expected, reference, config):
            return Result(family, parameters, False, {}, f"shares {name}: {fault}")
    devices = devices_file(folder, 3, (target,))
    module = parse_module(text)
    spoilt = {name: control.mutate for name, control in CONTROLS.items() if control.applies(module)}
    spoilt |= {"share": with_a_share_twice} if shares else {}
    wrong = {
        name: _tokens(text, folder / name, devices, prompts, mutate) != expected
        for name, mutate in spoilt.items()
        if controls
    }
    if controls and _has_whole_states(module):
        mixed = DirectRing(folder / f"build{cuts[0]}", one_slot=True)
        found = mixed.generate_together([[prompt] for prompt in prompts], TOKENS)
        wrong["slot"] = [batch[0] for batch in found] != expected
    return Result(family, parameters, True, wrong)


def _fault(
    ring: DirectRing,
    prompts: list[list[int]],
    expected: list[list[int]],
    reference: Reference,
    config: ModelConfig,
) -> str:
    """What is wrong with the first requests of a ring; nothing: an empty text.

    Where it is further from transformers than `TOLERANCE`, both are held against transformers in 64 bits: the ring must
    be within the tolerance there, or as near as transformers in 32 bits.
    """
    found = [ring.generate([prompt], TOKENS)[0] for prompt in prompts]
    if found != expected:
        return _difference(expected, found)
    pairs = list(zip(prompts, expected, strict=True))

    def error_beside(one: Reference) -> float:
        return max(
            largest_error(ring.trace[number], one, prompt, right)
            for number, (prompt, right) in enumerate(pairs, start=1)
        )

    error = error_beside(reference)
    if error <= TOLERANCE:
        return ""
    exact = open_reference(replace(config, dtype="float64"))
    own = max(relative_error(*(_logits(one, *pair) for one in (reference, exact))) for pair in pairs)
    error = error_beside(exact)
    if error <= max(TOLERANCE, own):
        return ""
    return f"tokens equal, but an error of {error:.1e}, where transformers' own in 32 bits is {own:.1e}"


def largest_error(trace: Any, reference: Reference, request: Any, tokens: Sequence[int]) -> float:
    """The largest error of the logits and of every value that crossed a link, over all steps, per largest value.

    `request` and its answer: see `Reference.whole`.
    """
    inputs = reference.whole(request, tokens)
    floats = {place: array for place, array in join_steps(trace).items() if array.dtype == np.float32}
    (logits,) = (array for (_, peer, device), array in floats.items() if peer == device)
    error = relative_error(logits, _logits(reference, request, tokens))
    crossed = {place: array for place, array in floats.items() if place[1] != place[2]}
    seen = reference.counterparts(inputs, {name for name, _, _ in crossed})
    for (name, _, _), array in crossed.items():
        if name in seen:
            difference, size = beside(array, seen[name])
            assert np.isfinite(difference), f"{name} {array.shape} is {seen[name].shape} in transformers"
            error = max(error, difference / max(1.0, size))
    return error


def _logits(reference: Reference, request: Any, tokens: Sequence[int]) -> Array:
    """Those that an answer was chosen from, a row a token."""
    return reference.outputs(reference.whole(request, tokens))["logits"][:, -len(tokens) :]


def relative_error(found: Array, right: Array) -> float:
    """The largest difference, per largest value."""
    assert found.shape == right.shape
    return float(np.abs(found - right).max()) / max(1.0, float(np.abs(right).max()))


def sample_prompts(vocabulary: int) -> list[list[int]]:
    """The same prompts every time, of the lengths in `PROMPTS`."""
    rng = np.random.default_rng(7)
    return [[int(token) for token in rng.integers(3, min(vocabulary, 97), length)] for length in PROMPTS]


def simplified(config: ModelConfig, quantize: str | None = None) -> str:
    """The text of the model's IR before it is cut; `quantize`: int8 or int4 in place of what the config says."""
    return simplified_text(load_cached(config), quantize)


def simplified_text(module: Module, quantize: str | None) -> str:
    """The same of an imported module, which is changed."""
    if quantize is not None:
        module.info = replace(module.info, quantize=Quantization(quantize, quantize, quantize))
    run_passes(module, [load_pass(text) for text in PHASES["simplify"]])
    return print_module(module)


def compile_ring(
    text: str,
    build: Path,
    devices: Path,
    mutate: Callable[[Module], None] | None = None,
    rule: str = "eq1+frontier",
    strategy: str = "even",
) -> DirectRing:
    """Compile simplified IR into `build` and open the ring; `mutate` spoils the module on the way."""
    module = parse_module(text)
    if mutate is not None:
        mutate(module)
    run_passes(module, default_pipeline(devices, strategy, rule, build, ("cut", "measure", "place", "emit")))
    return DirectRing(build)


def _tokens(
    text: str, build: Path, devices: Path, prompts: list[list[int]], mutate: Callable[[Module], None]
) -> list[list[int]]:
    ring = compile_ring(text, build, devices, mutate)
    return [ring.generate([prompt], TOKENS)[0] for prompt in prompts]


def _difference(expected: list[list[int]], found: list[list[int]]) -> str:
    lines = []
    for length, right, got in zip(PROMPTS, expected, found, strict=True):
        same = next((i for i, (a, b) in enumerate(zip(right, got, strict=True)) if a != b), len(right))
        lines.append(f"prompt of {length}: first {same} of {len(right)} tokens equal")
    return "; ".join(lines)


def _has_window(module: Module) -> bool:
    attentions = [node for node in module.graph.nodes if node.op == "partc.Attention"]
    return any(node.attributes.get("window") or node.attributes.get("chunk") for node in attentions)


def _has(module: Module, op: str) -> bool:
    return any(node.op == op for node in module.graph.nodes)


def _has_attention(module: Module) -> bool:
    return _has(module, "partc.UpdateState")


def _has_whole_states(module: Module) -> bool:
    return any(state.kind == "whole" for state in module.graph.states())


def _has_positions(module: Module) -> bool:
    """Whether anything but caches and attentions reads the position: rotary tables, learned positions, ALiBi."""
    readers = (node for node in module.graph.nodes if node.op != "Shape" and not node.op.startswith("partc."))
    return any(value.name == "position" for node in readers for value in node.operands)


def _no_attention(module: Module) -> None:
    """Every value that a cache keeps is zero, so attention adds nothing."""
    for node in list(module.graph.nodes):
        state = node.inputs[0] if node.op == "partc.UpdateState" else None
        new = node.inputs[1] if state is not None and state.name.endswith(".value") else None
        if new is None:
            continue
        zero = Constant(f"{new.name}.zero", new.dtype, (), array=np.zeros((), np.float32))
        product = Node("Mul", [new, zero], [Value(f"{new.name}.zeroed", new.dtype, new.shape)])
        module.graph.nodes.insert(module.graph.nodes.index(node), product)
        node.inputs[1] = product.outputs[0]


def _no_window(module: Module) -> None:
    for node in module.graph.nodes:
        if node.op == "partc.Attention":
            node.attributes |= {"window": 0, "chunk": 0}


def _shifted(module: Module) -> None:
    """In decode steps every position but that of the cache's rows is one too high."""
    graph = module.graph
    position = next(value for value in graph.inputs if value.name == "position")
    zero = Constant("shift.zero", "i64", (), array=np.zeros((), np.int64))
    later = Node("Greater", [position, zero], [Value("shift.later", "bool", position.shape)])
    one = Node("Cast", [later.outputs[0]], [Value("shift.one", "i64", position.shape)], {"to": 7})
    moved = Node("Add", [position, one.outputs[0]], [Value("shift.position", "i64", position.shape)])
    for node in graph.nodes:
        if not node.op.startswith("partc."):
            node.inputs = [moved.outputs[0] if value is position else value for value in node.inputs]
    graph.nodes[:0] = [later, one, moved]


def _no_memory(module: Module) -> None:
    """Nothing stays of a recurrent state from one token to the next."""
    for node in list(module.graph.nodes):
        if node.op == "partc.LinearAttention":
            decay = node.operand(4)
            floor = Constant(f"{node.name}.floor", "f32", (), array=np.array(-1e9, np.float32))
            _replace(
                module, node, 4, Node("Add", [decay, floor], [Value(f"{node.name}.all", "f32", decay.shape)])
            )


def _late(module: Module) -> None:
    """Convolutions see every row one step later."""
    for node in list(module.graph.nodes):
        if node.op == "partc.CausalConv":
            weight = node.operand(2)
            assert weight.shape is not None
            columns = np.array([*range(1, int(weight.shape[1])), 0])
            places = Constant(f"{node.name}.places", "i64", columns.shape, array=columns)
            late = Value(f"{node.name}.late", weight.dtype, weight.shape)
            _replace(module, node, 2, Node("Gather", [weight, places], [late], {"axis": 1}))


def _replace(module: Module, reader: Node, place: int, node: Node) -> None:
    """Let `reader` read what `node` makes at an operand's place."""
    nodes = module.graph.nodes
    nodes.insert(nodes.index(reader), node)
    reader.inputs[place] = node.outputs[0]


@dataclass(frozen=True)
class Control:
    """A way to spoil a compile that the comparison must notice."""

    mutate: Callable[[Module], None]
    applies: Callable[[Module], bool]
    """Whether the model has what it spoils."""


CONTROLS = {
    "attention": Control(_no_attention, _has_attention),
    "window": Control(_no_window, _has_window),
    "position": Control(_shifted, _has_positions),
    "memory": Control(_no_memory, lambda module: _has(module, "partc.LinearAttention")),
    "convolution": Control(_late, lambda module: _has(module, "partc.CausalConv")),
}
"""Besides, requests in flight share the states of one slot, where a model has some that a step rewrites as a whole."""
