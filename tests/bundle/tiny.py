"""A small model over two devices as IR text, its checkpoint, and the same model in numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from partc.ir.graph import Module
from partc.ir.text import parse_module
from tests.targets.numpy_attention import Array

VOCAB, WIDTH, HEADS, KV, SIZE, MAX = 16, 32, 4, 2, 8, 12


def tensors() -> dict[str, Array]:
    """The checkpoint, as a model's authors would store it: linear layers transposed, in two element types."""
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    layers: dict[str, Array] = {}
    for i in range(2):
        layers |= {
            f"l{i}.q": draw(WIDTH, WIDTH),
            f"l{i}.k": draw(KV * SIZE, WIDTH),
            f"l{i}.v": draw(KV * SIZE, WIDTH),
        }
        layers |= {f"l{i}.o": draw(WIDTH, WIDTH).astype(np.float16), f"l{i}.norm": draw(WIDTH)}
    return {"embed": draw(VOCAB, WIDTH), **layers}


def write_checkpoint(folder: Path) -> Path:
    """Two shards, written by hand as the format says, and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = tensors()
    for name, prefix in (("a.safetensors", ("embed", "l0")), ("b.safetensors", ("l1",))):
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        data = b""
        for key, array in everything.items():
            if key.startswith(prefix):
                kind = {"float32": "F32", "float16": "F16"}[array.dtype.name]
                header[key] = {
                    "dtype": kind,
                    "shape": list(array.shape),
                    "data_offsets": [len(data), len(data) + array.nbytes],
                }
                data += array.tobytes()
        text = json.dumps(header).encode()
        (folder / name).write_bytes(len(text).to_bytes(8, "little") + text + data)
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    return folder


def _layer(i: int, file: str, source: str, target: str) -> str:
    heads = f"f32[batch,{HEADS},sequence,{SIZE}]"
    new = f"f32[batch,{KV},sequence,{SIZE}]"
    hidden = f"f32[batch,sequence,{WIDTH}]"
    full = f"f32[batch,{KV},{MAX},{SIZE}]"

    def project(name: str, count: int, shape: str) -> str:
        return f"""
  weight %l{i}.{name} = f32[{WIDTH},{count * SIZE}] from "{file}"#"l{i}.{name}" |> transpose(1,0)
  %{name}{i}_flat: f32[batch,sequence,{count * SIZE}] = MatMul(%normed{i}, %l{i}.{name})
  %{name}{i}_rows: f32[batch,sequence,{count},{SIZE}] = Reshape(%{name}{i}_flat, %split{count})
  %{name}{i}: {shape} = Transpose(%{name}{i}_rows) {{perm=[0, 2, 1, 3]}}"""

    return f"""
  weight %l{i}.norm = f32[{WIDTH}] from "{file}"#"l{i}.norm"
  weight %l{i}.o = f32[{WIDTH},{WIDTH}] from "{file}"#"l{i}.o" |> cast(f32) |> transpose(1,0)
  const %split{HEADS} = i64[4] [0, 0, {HEADS}, {SIZE}]
  const %split{KV} = i64[4] [0, 0, {KV}, {SIZE}]
  const %join = i64[3] [0, 0, {WIDTH}]
  state %cache.{i}.key: {full}
  state %cache.{i}.value: {full}
  %normed{i}: {hidden} = RMSNormalization({source}, %l{i}.norm) {{axis=-1, epsilon=0.00001}}
  {project("q", HEADS, heads)}{project("k", KV, new)}{project("v", KV, new)}
  %keys{i}: {full} = partc.UpdateState(%cache.{i}.key, %k{i}, %position)
  %values{i}: {full} = partc.UpdateState(%cache.{i}.value, %v{i}, %position)
  %a{i}: {heads} = partc.Attention(%q{i}, %keys{i}, %values{i}, %position) {{scale=0.5, causal=1}}
  %a{i}_rows: f32[batch,sequence,{HEADS},{SIZE}] = Transpose(%a{i}) {{perm=[0, 2, 1, 3]}}
  %a{i}_flat: {hidden} = Reshape(%a{i}_rows, %join)
  %o{i}: {hidden} = MatMul(%a{i}_flat, %l{i}.o)
  {target}: {hidden} = Add({source}, %o{i})"""


HEADER = f"""partc-ir 1
model {{"name": "tiny", "task": "text-generation", "folder": "FOLDER", "max_sequence": {MAX}, "max_batch": 2,
 "max_requests": 2,
 "dims": {{"batch": 2, "sequence": {MAX}}}, "vocab_size": {VOCAB}, "eos_token_ids": [0]}}
""".replace("\n ", " ")

_PROMPT = "\n  input %input_ids: i64[batch,sequence]"
_POSITION = "\n  input %position: i64[batch]"
_LENGTH = "\n  input %length: i64[batch]"
_EMBED = f"""
  weight %embed = f32[{VOCAB},{WIDTH}] from "a.safetensors"#"embed"
  %h0: f32[batch,sequence,{WIDTH}] = Gather(%embed, %input_ids) {{axis=0}}"""
_HEAD = f"""
  const %one = i64[] [1]
  const %axis = i64[1] [1]
  const %axes = i64[2] [1, 2]
  const %spread = i64[3] [1, 1, {WIDTH}]
  weight %head = f32[{WIDTH},{VOCAB}] from "a.safetensors"#"embed" |> transpose(1,0)
  %last: i64[batch] = Sub(%length, %one)
  %last_column: i64[batch,1,1] = Unsqueeze(%last, %axes)
  %last_index: i64[batch,1,{WIDTH}] = Expand(%last_column, %spread)
  %hidden: f32[batch,1,{WIDTH}] = GatherElements(%h2, %last_index) {{axis=1}}
  %logits: f32[batch,1,{VOCAB}] = MatMul(%hidden, %head)
  output %logits"""
_L0, _L1 = _layer(0, "a.safetensors", "%h0", "%h1"), _layer(1, "b.safetensors", "%h1", "%h2")
_SHARED = ("const %split", "const %join")


def _unique(text: str) -> str:
    """Without the second definition of a constant that both layers define."""
    seen: set[str] = set()
    lines = []
    for line in text.splitlines():
        if line.strip().startswith(_SHARED) and line in seen:
            continue
        seen.add(line)
        lines.append(line)
    return "\n".join(lines)


def _part(device: str, target: str, name: str, programs: dict[str, str], body: str) -> str:
    phases = "".join(f"program {phase}\n{text}\nend\n" for phase, text in programs.items())
    return f"part {device} target {target} {{\n{phases}graph {name} opset 24 {{{body}\n}}\n}}\n"


_SOURCE = "run part_0 (input_ids, position) -> (h1)\nsend h1 to board\nrecv token from board\nemit token"
_LAST = """recv h1 from phone
run part_1 (h1, position, length) -> (logits)
sample logits -> token
send token to phone"""


def module(folder: Path, target: str = "ort") -> Module:
    """The model split over `phone` and `board`."""
    parts = _part(
        "phone", target, "part_0", {"prefill": _SOURCE, "decode": _SOURCE},
        _PROMPT + _POSITION + _EMBED + _L0 + "\n  output %h1",
    ) + _part(
        "board", target, "part_1", {"prefill": _LAST, "decode": _LAST},
        f"\n  input %h1: f32[batch,sequence,{WIDTH}]" + _POSITION + _LENGTH + _L1 + _HEAD,
    )  # fmt: skip
    whole = (
        f"graph tiny opset 24 {{{_unique(_PROMPT + _POSITION + _LENGTH + _EMBED + _L0 + _L1 + _HEAD)}\n}}\n"
    )
    return parse_module(HEADER.replace("FOLDER", str(folder)) + whole + parts)


def numpy_logits(tokens: Array) -> Array:
    """Logits [sequence, vocab] of one whole sequence, without caches."""
    weights = {name: array.astype(np.float64) for name, array in tensors().items()}
    h = weights["embed"][tokens]
    count = len(tokens)
    hidden_keys = np.triu(np.ones((count, count), bool), 1)
    for i in range(2):
        normed = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * weights[f"l{i}.norm"]
        q, k, v = (
            (normed @ weights[f"l{i}.{name}"].T).reshape(count, -1, SIZE).transpose(1, 0, 2) for name in "qkv"
        )
        k, v = (np.repeat(operand, HEADS // KV, 0) for operand in (k, v))
        logits = np.where(hidden_keys, -np.inf, q @ k.transpose(0, 2, 1) * 0.5)
        weight = np.exp(logits - logits.max(-1, keepdims=True))
        a = (weight / weight.sum(-1, keepdims=True)) @ v
        h = h + a.transpose(1, 0, 2).reshape(count, WIDTH) @ weights[f"l{i}.o"].T
    return np.asarray(h @ weights["embed"].T)
