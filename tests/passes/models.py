"""Small models as IR text, written the way the front end exports them: canonical, sized, with caches."""

from __future__ import annotations

import json
from typing import Any

from partc.ir.graph import Module
from partc.ir.text import parse_module

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 64, 4, 2, 16, 128, 1000


class Builder:
    """Collects lines of one graph; weights are declared where they are first used."""

    def __init__(self) -> None:
        self.leaves: list[str] = []
        self.lines: list[str] = []

    def weight(self, name: str, *shape: int, key: str | None = None, then: str = "") -> str:
        sizes = ", ".join(str(size) for size in shape)
        self.leaves.append(f'weight %{name} = f32[{sizes}] from "m.safetensors"#"{key or name}"{then}')
        return f"%{name}"

    def node(self, name: str, kind: str, call: str) -> str:
        self.lines.append(f"%{name}: {kind} = {call}")
        return f"%{name}"

    def linear(self, name: str, x: str, wide: int, narrow: int, sizes: str = "batch, sequence") -> str:
        weight = self.weight(f"{name}.w", wide, narrow)
        return self.node(name, f"f32[{sizes}, {narrow}]", f"MatMul({x}, {weight})")

    def norm(self, name: str, x: str) -> str:
        weight = self.weight(f"{name}.w", HIDDEN)
        return self.node(name, hidden(), f"RMSNormalization({x}, {weight}) {{epsilon = 1e-05}}")

    def add(self, name: str, a: str, b: str) -> str:
        return self.node(name, hidden(), f"Add({a}, {b})")


def hidden() -> str:
    return f"f32[batch, sequence, {HIDDEN}]"


def attention(b: Builder, i: int, x: str, *, fused: bool) -> str:
    """Projections, rotary embedding, cache, attention, output projection."""
    p, shapes = f"l{i}.", {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
    if fused:
        whole = b.linear(f"{p}qkv", x, HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD)
        kinds = ", ".join(f"%{p}{n}: f32[batch, sequence, {h * HEAD}]" for n, h in shapes.items())
        b.lines.append(f"{kinds} = Split({whole}, %sizes) {{axis = -1}}")
        flat = {n: f"%{p}{n}" for n in shapes}
    else:
        flat = {n: b.linear(f"{p}{n}", x, HIDDEN, h * HEAD) for n, h in shapes.items()}
    split = {}
    for n, h in shapes.items():
        rows = b.node(f"{p}{n}.rows", f"f32[batch, sequence, {h}, {HEAD}]", f"Reshape({flat[n]}, %to_{h})")
        kind = f"f32[batch, {h}, sequence, {HEAD}]"
        split[n] = b.node(f"{p}{n}.heads", kind, f"Transpose({rows}) {{perm = [0, 2, 1, 3]}}")
        if n != "v":
            split[n] = b.node(f"{p}{n}.rot", kind, f"RotaryEmbedding({split[n]}, %cos, %sin)")
    for n in ("k", "v"):
        kind = f"f32[batch, {KV_HEADS}, 512, {HEAD}]"
        cache = "key" if n == "k" else "value"
        b.leaves.append(f"state %cache.{i}.{cache}: {kind}")
        split[n] = b.node(
            f"{p}{n}.full", kind, f"partc.UpdateState(%cache.{i}.{cache}, {split[n]}, %position)"
        )
    call = f"partc.Attention({split['q']}, {split['k']}, {split['v']}, %position)"
    kind = f"f32[batch, {HEADS}, sequence, {HEAD}]"
    out = b.node(
        f"{p}attn", kind, f"{call} {{causal = 1, chunk = 0, scale = 0.25, softcap = 0.0, window = 0}}"
    )
    back = b.node(
        f"{p}back", f"f32[batch, sequence, {HEADS}, {HEAD}]", f"Transpose({out}) {{perm = [0, 2, 1, 3]}}"
    )
    return b.linear(f"{p}o", b.node(f"{p}flat", hidden(), f"Reshape({back}, %to_flat)"), HIDDEN, HIDDEN)


def mlp(b: Builder, i: int, x: str, *, gated: bool) -> str:
    inner = f"f32[batch, sequence, {INNER}]"
    up = b.linear(f"l{i}.up", x, HIDDEN, INNER)
    if gated:
        gate = b.node(f"l{i}.act", inner, f"Swish({b.linear(f'l{i}.gate', x, HIDDEN, INNER)})")
        up = b.node(f"l{i}.mul", inner, f"Mul({gate}, {up})")
    else:
        up = b.node(f"l{i}.act", inner, f"Gelu({up})")
    return b.linear(f"l{i}.down", up, INNER, HIDDEN)


def layer(b: Builder, kind: str, i: int, h: str) -> str:
    p = f"l{i}."
    if kind == "neox":
        a = attention(b, i, b.norm(f"{p}norm1", h), fused=True)
        m = mlp(b, i, b.norm(f"{p}norm2", h), gated=False)
        return b.add(f"{p}out", b.add(f"{p}both", m, a), h)
    if kind == "olmo2":
        h = b.add(f"{p}mid", h, b.norm(f"{p}norm1", attention(b, i, h, fused=False)))
        return b.add(f"{p}out", h, b.norm(f"{p}norm2", mlp(b, i, h, gated=True)))
    plain = kind == "llama"
    h = b.add(f"{p}mid", h, attention(b, i, b.norm(f"{p}norm1", h), fused=not plain))
    return b.add(f"{p}out", h, mlp(b, i, b.norm(f"{p}norm2", h), gated=plain))


def decoder_text(kind: str = "llama", layers: int = 2, **info: Any) -> str:
    """The text of a decoder: `llama`, `gpt2` (fused q-k-v), `neox` (parallel residual) or `olmo2`.

    The tables of the rotary embedding are exported first, as the real exporter does.
    """
    b = Builder()
    b.node("ids", "i64[batch, sequence]", "Add(%position_column, %index)")
    b.lines.insert(0, "%position_column: i64[batch, 1] = Unsqueeze(%position, %axis)")
    b.node(
        "angles",
        f"f32[batch, sequence, {HEAD // 2}]",
        'Einsum(%float_ids, %frequencies) {equation = "bs,d->bsd"}',
    )
    b.lines.insert(2, "%float_ids: f32[batch, sequence] = Cast(%ids) {to = 1}")
    b.node("cos", f"f32[batch, sequence, {HEAD // 2}]", "Cos(%angles)")
    b.node("sin", f"f32[batch, sequence, {HEAD // 2}]", "Sin(%angles)")
    h = b.node("h0", hidden(), f"Gather({b.weight('embed', VOCAB, HIDDEN)}, %input_ids) {{axis = 0}}")
    for i in range(layers):
        h = layer(b, kind, i, h)
    h = b.norm("norm", h)
    b.node("before", "i64[batch]", "Sub(%length, %one)")
    b.node("column", "i64[batch, 1, 1]", "Unsqueeze(%before, %last_axes)")
    b.node("rows", f"i64[batch, 1, {HIDDEN}]", "Expand(%column, %wide)")
    h = b.node("last", f"f32[batch, 1, {HIDDEN}]", f"GatherElements({h}, %rows) {{axis = 1}}")
    head = b.weight("head", HIDDEN, VOCAB, key="embed", then=" |> transpose(1,0)")
    b.node("logits", f"f32[batch, 1, {VOCAB}]", f"MatMul({h}, {head})")
    header = {
        "name": kind,
        "task": "text-generation",
        "dims": {"batch": 1, "sequence": 512},
        "max_requests": 1,
        **info,
    }
    body = [
        "input %input_ids: i64[batch, sequence]",
        "input %index: i64[sequence]",
        "input %position: i64[batch]",
        "input %length: i64[batch]",
        f"const %frequencies = f32[{HEAD // 2}] [{', '.join(f'{0.5**k}' for k in range(HEAD // 2))}]",
        "const %axis = i64[1] [1]",
        "const %one = i64[] [1]",
        "const %last_axes = i64[2] [1, 2]",
        f"const %wide = i64[3] [1, 1, {HIDDEN}]",
        f"const %sizes = i64[3] [{HEADS * HEAD}, {KV_HEADS * HEAD}, {KV_HEADS * HEAD}]",
        f"const %to_{HEADS} = i64[4] [0, 0, {HEADS}, {HEAD}]",
        f"const %to_{KV_HEADS} = i64[4] [0, 0, {KV_HEADS}, {HEAD}]",
        f"const %to_flat = i64[3] [0, 0, {HIDDEN}]",
        *b.leaves,
        *b.lines,
        "output %logits",
    ]
    return graph_text(body, **header)


def graph_text(body: list[str], **header: object) -> str:
    """A module around the lines of a graph."""
    lines = "\n".join(f"  {line}" for line in body)
    return f"partc-ir 1\nmodel {json.dumps({'name': 'm', **header})}\ngraph main opset 24 {{\n{lines}\n}}\n"


def decoder(kind: str = "llama", layers: int = 2, **info: Any) -> Module:
    """`decoder_text`, parsed."""
    return parse_module(decoder_text(kind, layers, **info))


def graph(text: str, **header: object) -> Module:
    """A module from the lines of a graph alone; `task` is `graph` unless given."""
    body = [line.strip() for line in text.strip().splitlines()]
    return parse_module(graph_text(body, **{"task": "graph", **header}))
