"""Graphs with every operator of ours in every form that models use; several forms a graph, each with its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from partc.format.dtypes import Array
from partc.ir.operators import (
    ATTENTION,
    CAUSAL_CONV,
    LINEAR_ATTENTION,
    QUANTIZE_ROWS,
    QUANTIZED_ATTENTION,
    QUANTIZED_EXPERTS,
    QUANTIZED_GATHER,
    QUANTIZED_MATMUL,
    UPDATE_STATE,
)
from partc.ir.weight_formats import format_of
from tests.targets.compiled_steps import MAX

HEADS, SIZE, EXPERTS = 4, 8, 5
VOCAB = 40


@dataclass
class Cases:
    """One graph, and what it reads."""

    lines: list[str] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    tolerance: float = 1e-5
    """Largest difference, as a part of the largest number of the result."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Output → what of it counts: `rows` on axis 2, rows of a `cache` on axis 2, `tokens` on axis 1, or `all`."""

    def add(self, line: str) -> None:
        """A line, once."""
        if line not in self.lines:
            self.lines.append(line)

    def input(self, name: str, kind: str) -> str:
        """An input of the graph."""
        self.add(f"input %{name}: {kind}")
        return f"%{name}"

    def result(self, kind: str, call: str, counts: str) -> None:
        """A node whose result is an output."""
        name = f"y{len(self.outputs)}"
        self.lines.append(f"%{name}: {kind} = {call}")
        self.outputs[name] = counts

    def leave_out(self, names: set[str]) -> None:
        """Results, for a target that has no code for them."""
        self.lines = [line for line in self.lines if line.removeprefix("%").partition(":")[0] not in names]
        for name in names:
            del self.outputs[name]

    @property
    def text(self) -> list[str]:
        """The graph: inputs and leaves before nodes, outputs behind them."""
        order = ("input", "const", "weight", "state", "%")
        body = [line for kind in order for line in self.lines if line.startswith(kind)]
        return [*body, *(f"output %{name}" for name in self.outputs)]


def _attention() -> Cases:
    found = Cases()
    plain = {"scale": 0.3, "causal": 1}
    rules: list[Mapping[str, float]] = [
        {}, {"window": 4}, {"window": 2}, {"chunk": 4}, {"softcap": 2.0}, {"window": 3, "softcap": 1.5},
        {"window": 3, "chunk": 5}, {"chunk": 4, "softcap": 2.0}, {"scale": 1.25},
    ]  # fmt: skip
    for rule in rules:
        _over_cache(found, {**plain, **rule})
    for kv, size, value_size in ((1, SIZE, SIZE), (4, SIZE, SIZE), (2, 6, 6), (2, SIZE, 6)):
        _over_cache(found, plain, kv, size, value_size)
    alibi = found.input("alibi", f"f32[1, {HEADS}, sequence, {MAX}]")
    seen = found.input("seen", f"bool[batch, 1, sequence, {MAX}]")
    sinks = found.input("sinks", f"f32[{HEADS}]")
    for more in (f", {alibi}", f", {seen}", f", _, {sinks}", f", {alibi}, {sinks}", f", {seen}, {sinks}"):
        _over_cache(found, plain, more=more)
    _over_cache(found, {**plain, "window": 3}, more=f", _, {sinks}")
    _over_cache(found, {**plain, "chunk": 4, "softcap": 2.0}, more=f", {alibi}")
    _over_rows(found)
    return found


def _over_cache(
    found: Cases,
    rule: Mapping[str, float],
    kv: int = 2,
    size: int = SIZE,
    value_size: int = SIZE,
    more: str = "",
) -> None:
    number = len(found.outputs)
    query = found.input(f"q{size}", f"f32[batch, {HEADS}, sequence, {size}]")
    position = found.input("position", "i64[batch]")
    full = []
    for name, width in (("key", size), ("value", value_size)):
        new = found.input(f"{name}{kv}_{width}", f"f32[batch, {kv}, sequence, {width}]")
        kind = f"f32[batch, {kv}, {MAX}, {width}]"
        found.lines.append(f"state %cache.{number}.{name}: {kind}")
        found.lines.append(
            f"%{name}.{number}: {kind} = partc.UpdateState(%cache.{number}.{name}, {new}, {position})"
        )
        full.append(f"%{name}.{number}")
    kind = f"f32[batch, {HEADS}, sequence, {value_size}]"
    operands = f"{query}, {', '.join(full)}, {position}{more}"
    found.result(kind, f"partc.Attention({operands}) {_attributes(rule)}", "rows")


def _over_rows(found: Cases) -> None:
    """Attention without a cache, as encoders have it."""
    kind = f"f32[batch, {HEADS}, sequence, {SIZE}]"
    q, k, v = (found.input(name, kind) for name in ("q8", "key4_8", "value4_8"))
    there = found.input("there", "bool[batch, 1, 1, sequence]")
    bias = found.input("bias", f"f32[1, {HEADS}, sequence, sequence]")
    for more, rule in (
        ("", {"causal": 1}), (f", _, {there}", {"causal": 0}), (f", _, {bias}", {"causal": 1, "window": 3}),
    ):  # fmt: skip
        found.result(
            kind, f"partc.Attention({q}, {k}, {v}{more}) {_attributes({'scale': 0.3, **rule})}", "rows"
        )


def _update_state() -> Cases:
    found = Cases(tolerance=0)
    position = found.input("position", "i64[batch]")
    for heads, size in ((2, SIZE), (1, 6), (3, 2)):
        new = found.input(f"key{heads}_{size}", f"f32[batch, {heads}, sequence, {size}]")
        kind = f"f32[batch, {heads}, {MAX}, {size}]"
        found.lines.append(f"state %cache.{heads}: {kind}")
        found.lines.append(f"%full.{heads}: {kind} = partc.UpdateState(%cache.{heads}, {new}, {position})")
        found.result(kind, f"Neg(%full.{heads})", "cache")
    return found


def _causal_conv() -> Cases:
    found = Cases()
    length = found.input("length", "i64[batch]")
    for channels, kernel, bias in ((6, 4, True), (5, 2, False), (16, 4, False)):
        x = found.input(f"c{channels}", f"f32[batch, sequence, {channels}]")
        weight = found.input(f"taps{channels}", f"f32[{channels}, {kernel}]")
        more = f", {found.input(f'bias{channels}', f'f32[{channels}]')}" if bias else ""
        state = f"f32[batch, {kernel - 1}, {channels}]"
        operands = f"%rows.{channels}, {x}, {weight}, {length}{more}"
        _remembering(found, str(channels), "rows", x, state, f"partc.CausalConv({operands})")
    return found


def _linear_attention() -> Cases:
    found = Cases()
    length = found.input("length", "i64[batch]")
    for heads, groups, k, v, channels, beta in (
        (4, 4, 8, 8, 1, True), (4, 2, 8, 16, 8, True), (4, 2, 16, 8, 1, False), (12, 1, 6, 1, 6, False),
    ):  # fmt: skip
        name = f"{heads}_{groups}_{k}_{v}_{channels}"
        query, key = (found.input(f"{what}{name}", f"f32[batch, sequence, {groups}, {k}]") for what in "qk")
        value = found.input(f"v{name}", f"f32[batch, sequence, {heads}, {v}]")
        decay = found.input(f"decay{name}", f"f32[batch, sequence, {heads}, {channels}]")
        more = f", {found.input(f'beta{name}', f'f32[batch, sequence, {heads}]')}" if beta else ""
        operands = f"%past.{name}, {query}, {key}, {value}, {decay}, {length}{more}"
        call = f"partc.LinearAttention({operands}) {{scale = 0.7}}"
        _remembering(found, name, "past", value, f"f32[batch, {heads}, {k}, {v}]", call)
    return found


def _remembering(found: Cases, name: str, state: str, like: str, kind: str, call: str) -> None:
    """A node with a state of the second kind: its result, which has the type of the input `like`, and what it keeps."""
    found.lines.append(f"state %{state}.{name}: {kind} whole")
    result = next(line.partition(": ")[2] for line in found.lines if line.startswith(f"input {like}:"))
    found.lines.append(f"%out.{name}: {result}, %last.{name}: {kind} = {call}")
    found.result(result, f"Neg(%out.{name})", "tokens")
    found.result(kind, f"Neg(%last.{name})", "all")


def _quantize_rows() -> Cases:
    found = Cases(tolerance=0.01)  # a half may be rounded to the other side
    for number, (heads, size) in enumerate(((2, SIZE), (1, 6))):
        x = found.input(f"key{heads}_{size}", f"f32[batch, {heads}, sequence, {size}]")
        sizes = f"batch, {heads}, sequence"
        found.lines.append(
            f"%d{number}: i8[{sizes}, {size}], %s{number}: f32[{sizes}, 1] = partc.QuantizeRows({x})"
        )
        found.outputs[f"d{number}"] = "rows"
    return found


def _quantized_attention() -> Cases:
    found = Cases(tolerance=0.005)
    plain = {"scale": 0.3, "causal": 1}
    alibi = found.input("alibi", f"f32[1, {HEADS}, sequence, {MAX}]")
    sinks = found.input("sinks", f"f32[{HEADS}]")
    forms: list[tuple[Mapping[str, float], str]] = [
        ({}, ""), ({"window": 3}, ""), ({"chunk": 4, "softcap": 2.0}, ""),
        ({}, f", {alibi}"), ({}, f", _, {sinks}"), ({"window": 4}, f", {alibi}, {sinks}"),
    ]  # fmt: skip
    for rule, more in forms:
        _over_quantized_cache(found, {**plain, **rule}, more)
    return found


def _over_quantized_cache(found: Cases, rule: Mapping[str, float], more: str) -> None:
    """The rows of a step become 8 bits on their way, since no request brings such numbers."""
    number = len(found.outputs)
    query = found.input(f"q{SIZE}", f"f32[batch, {HEADS}, sequence, {SIZE}]")
    position = found.input("position", "i64[batch]")
    for name in ("key", "value"):
        new = found.input(f"{name}2_{SIZE}", f"f32[batch, 2, sequence, {SIZE}]")
        rows = f"%{name}.rows.{number}: i8[batch, 2, sequence, {SIZE}]"
        scales = f"%{name}.scales.{number}: f32[batch, 2, sequence, 1]"
        found.lines.append(f"{rows}, {scales} = partc.QuantizeRows({new})")
        for what, kind in (("rows", f"i8[batch, 2, {MAX}, {SIZE}]"), ("scales", f"f32[batch, 2, {MAX}, 1]")):
            state = f"%cache.{number}.{name}.{what}"
            found.lines.append(f"state {state}: {kind}")
            found.lines.append(
                f"%{name}.{what}.full.{number}: {kind}"
                f" = partc.UpdateState({state}, %{name}.{what}.{number}, {position})"
            )
    full = [f"%{name}.{what}.full.{number}" for what in ("rows", "scales") for name in ("key", "value")]
    kind = f"f32[batch, {HEADS}, sequence, {SIZE}]"
    call = f"partc.QuantizedAttention({query}, {', '.join(full)}, {position}{more}) {_attributes(rule)}"
    found.result(kind, call, "rows")


FORMS = ((4, 16), (4, 32), (4, 64), (4, 128), (8, 0), (8, 16), (8, 32), (8, 64))
"""Bits and block."""


def _stored(found: Cases, key: str, rows: int, columns: int, bits: int, block: int) -> str:
    """Data and scales of a matrix, as operands."""
    found.weights.setdefault(key, _draw(key, rows, columns))
    kinds = {
        "quantize": f"{'u8' if bits == 4 else 'i8'}{list(format_of(bits, block).data_shape(rows, columns, block))}",
        "scales": f"f32{list(format_of(bits, block).scales_shape(rows, columns, block))}",
    }
    for step, kind in kinds.items():
        found.add(
            f'weight %{key}.{step}{bits}.{block} = {kind} from "m.safetensors"#"{key}" |> {step}({bits}, {block})'
        )
    return ", ".join(f"%{key}.{step}{bits}.{block}" for step in kinds)


def _draw(key: str, *shape: int) -> Array:
    return np.random.default_rng(len(key) + sum(map(ord, key))).standard_normal(shape).astype(np.float32)


def _quantized_matmul() -> Cases:
    found = Cases(tolerance=0.03)  # activations are rounded to 8 bits
    for columns in (64, 100):
        x = found.input(f"x{columns}", f"f32[batch, sequence, {columns}]")
        for bits, block in FORMS:
            weights = _stored(found, f"m{columns}", 24, columns, bits, block)
            call = f"partc.QuantizedMatMul({x}, {weights}) {_attributes({'bits': bits, 'block': block})}"
            found.result("f32[batch, sequence, 24]", call, "all")
            if block and columns % block == 0:
                key = f"o{bits}.{block}"
                shape = 24, columns // block
                found.weights.setdefault(key, _draw(key, *shape))
                found.add(f'weight %{key} = f32{list(shape)} from "m.safetensors"#"{key}"')
                found.result("f32[batch, sequence, 24]", call.replace(")", f", %{key})", 1), "all")
    return found


def _quantized_gather() -> Cases:
    found = Cases()
    indices = found.input("tokens", "i64[batch, sequence]")
    for columns in (64, 128):
        for bits, block in FORMS:
            if columns % max(block, 1):
                continue
            weights = _stored(found, f"t{columns}", VOCAB, columns, bits, block)
            call = (
                f"partc.QuantizedGather({weights}, {indices}) {_attributes({'bits': bits, 'block': block})}"
            )
            found.result(f"f32[batch, sequence, {columns}]", call, "all")
    return found


def _quantized_experts() -> Cases:
    found = Cases(tolerance=0.03)
    for columns in (64, 100):
        x = found.input(f"rows{columns}", f"f32[sequence, {columns}]")
        chosen = found.input("chosen", "i64[sequence]")
        for bits, block in FORMS:
            stored = [_stored(found, f"e{columns}.{n}", 24, columns, bits, block) for n in range(EXPERTS)]
            rule = _attributes({"bits": bits, "block": block})
            call = f"partc.QuantizedExperts({x}, {chosen}, {', '.join(stored)}) {rule}"
            found.result("f32[sequence, 24]", call, "all")
    return found


def _attributes(rule: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in rule.items()) + "}"


CASES: Mapping[str, Callable[[], Cases]] = {
    ATTENTION.name: _attention,
    UPDATE_STATE.name: _update_state,
    CAUSAL_CONV.name: _causal_conv,
    LINEAR_ATTENTION.name: _linear_attention,
    QUANTIZE_ROWS.name: _quantize_rows,
    QUANTIZED_ATTENTION.name: _quantized_attention,
    QUANTIZED_MATMUL.name: _quantized_matmul,
    QUANTIZED_GATHER.name: _quantized_gather,
    QUANTIZED_EXPERTS.name: _quantized_experts,
}
"""Operator → a graph with its forms."""


@dataclass(frozen=True)
class OneStep:
    """Sizes of one step."""

    name: str
    position: tuple[int, ...]
    length: tuple[int, ...]
    rows: int


STEPS: Mapping[int, tuple[OneStep, ...]] = {
    1: (
        OneStep("prompt", (0,), (7,), 7),
        OneStep("continued prompt", (7,), (5,), 5),
        OneStep("token", (12,), (1,), 1),
        OneStep("another token", (13,), (1,), 1),
    ),
    3: (
        OneStep("prompts of unequal lengths", (0, 0, 0), (7, 3, 5), 7),
        OneStep("tokens at unequal positions", (7, 3, 5), (1, 1, 1), 1),
        OneStep("more tokens", (8, 4, 6), (1, 1, 1), 1),
    ),
}
"""Sequences of a step → steps that follow each other over the same states."""


def inputs_of(lines: list[str], step: OneStep, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Values for every input of a graph."""
    batch = len(step.position)
    for line in (line for line in lines if line.startswith("input")):
        name, _, kind = line.removeprefix("input %").partition(": ")
        sizes = {"batch": batch, "sequence": step.rows}
        dims = [dim.strip() for dim in kind.partition("[")[2].rstrip("]").split(",")]
        shape = [sizes.get(dim) or int(dim) for dim in dims]
        yield name, _values(name, kind, shape, step, rng)


def _values(name: str, kind: str, shape: list[int], step: OneStep, rng: np.random.Generator) -> Array:
    if name == "position":
        return np.array(step.position, np.int64)
    if name == "length":
        return np.array(step.length, np.int64)
    if name.startswith("decay"):
        return -np.abs(rng.standard_normal(shape)).astype(np.float32)
    if name == "there":
        return np.arange(step.rows)[None, None, None, :] < np.array(step.length)[:, None, None, None]
    if kind.startswith("bool"):
        seen: Array = rng.standard_normal(shape) > -0.5
        seen[..., 0] = True  # every query sees something
        return seen
    if name == "chosen":
        return rng.permutation(np.arange(step.rows) % EXPERTS)  # a prompt chooses all of them
    if kind.startswith("i64"):
        return rng.integers(0, VOCAB, shape)
    return rng.standard_normal(shape).astype(np.float32)
