"""Models larger than memory: how long compiling takes, and how much memory: `python -m tests.bench.large_model FOLDER`.

Makes a checkpoint in FOLDER (Llama-2-7B shape, bfloat16, sharded, 13.5 GB) and compiles it for three devices: to int4,
and to float16 and bfloat16, which take as much disk again as the checkpoint. Prints time, memory and sizes of each
compile, of a second one with other links, and of `cp` of the same bytes; computes one token through the ring of the
int4 bundle. Builds are removed on the way; the checkpoint stays. `--shape 1.1B` is a quick one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from partc.format.safetensors import Entry, write_safetensors
from partc.ir.weights import Array
from tests.bench import llamas

SHAPES: dict[str, dict[str, int]] = {
    "7B": {
        "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "1.1B": llamas.SHAPES["1.1B"],
}  # fmt: skip
"""Name → what `LlamaConfig` takes. Embedding and head are not tied."""
SHARD_BYTES = 5 << 30
DEVICES = """\
source: a
memory_fraction: 1.0
devices:
  a: {{target: ort, provider: {provider}, flops: 40 GFLOP/s, memory_bandwidth: 10 GB/s, memory: 16 GiB}}
  b: {{target: ort, provider: {provider}, flops: 40 GFLOP/s, memory_bandwidth: 10 GB/s, memory: 16 GiB}}
  c: {{target: ort, provider: {provider}, flops: 40 GFLOP/s, memory_bandwidth: 10 GB/s, memory: 16 GiB}}
links: {{default: {{bandwidth: {mbit} Mbit/s, latency: 2 ms}}}}
place: {{a: layers 0-{first}, b: layers {second}-{third}, c: layers {fourth}-{last}}}
"""
Q4_0_BITS, Q6_K_BITS = 4.5, 6.5625
"""Bits of a weight in GGUF; Q4_0 files keep the head in Q6_K and the norms in float32."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one command."""

    what: str
    wall_s: float
    cpu_s: float
    peak_bytes: int = 0
    """Resident memory at most, mapped pages of files included."""
    peak_anonymous_bytes: int = 0
    """The largest part of it that belongs to the process alone, sampled every 20 ms."""
    bytes: int = 0
    """Bytes of the written files."""


def tensors_of(shape: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor of a Llama."""
    hidden, inner, vocab = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    cached = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    layer = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (cached, hidden),
        "self_attn.v_proj": (cached, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for number in range(shape["num_hidden_layers"]):
        found |= {f"model.layers.{number}.{name}.weight": sizes for name, sizes in layer.items()}
    return {**found, "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}


def make_checkpoint(folder: Path, shape: dict[str, int]) -> None:
    """Random weights in shards; tensors repeat one block of random numbers, each from a place of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps({**settings, **shape, "tie_word_embeddings": False}))
    shards: list[list[Entry]] = [[]]
    for name, sizes in tensors_of(shape).items():
        entry = Entry(name, "bf16", sizes)
        if sum(other.bytes for other in shards[-1]) + entry.bytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(entry)
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    block = np.random.default_rng(0).standard_normal(1 << 23, np.float32) / math.sqrt(shape["hidden_size"])
    for name, entries in zip(names, shards, strict=True):
        numbers = block.astype(ml_dtypes.bfloat16)
        write_safetensors(folder / name, entries, partial(_values, entries, numbers), lambda *_: None)
    index = {entry.name: name for name, entries in zip(names, shards, strict=True) for entry in entries}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _values(entries: Sequence[Entry], numbers: Array, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    for place, entry in enumerate(entries):
        if len(entry.shape) == 1:
            yield entry.name, np.ones(entry.shape, ml_dtypes.bfloat16)
            continue
        left, start = math.prod(entry.shape), 997 * place % len(numbers)
        while left:
            piece = numbers[start : start + left]
            yield entry.name, piece
            left, start = left - len(piece), 0


def measure(what: str, command: Sequence[str], folder: Path) -> Measured:
    """Run a command and watch its memory.

    Raises:
        RuntimeError: it fails; the message is what it printed.
    """
    started = time.monotonic()
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        anonymous = 0
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            anonymous = max(anonymous, _anonymous_bytes(process.pid))
            time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {log.read_text()}")
    usage = ended[2]
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(what, time.monotonic() - started, cpu, usage.ru_maxrss << 10, anonymous)


def _anonymous_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def gguf_bytes(shape: dict[str, int]) -> int:
    """Size of the weights in a Q4_0 GGUF file as llama-quantize makes it."""
    bits = 0.0
    for name, sizes in tensors_of(shape).items():
        kind = 32 if len(sizes) == 1 else Q6_K_BITS if name == "lm_head.weight" else Q4_0_BITS
        bits += math.prod(sizes) * kind
    return int(bits / 8)


def write_inputs(folder: Path, shape: dict[str, int]) -> None:
    """model.yaml of every precision; devices.yaml with fast and with slow links, and with GPUs, which have bfloat16."""
    layers = shape["num_hidden_layers"]
    ends = [layers // 3 - 1, 2 * layers // 3 - 1]
    for name, mbit, provider in (("fast", 300, "cpu"), ("slow", 50, "cpu"), ("cuda", 300, "cuda")):
        text = DEVICES.format(
            provider=provider,
            mbit=mbit,
            first=ends[0],
            second=ends[0] + 1,
            third=ends[1],
            fourth=ends[1] + 1,
            last=layers - 1,
        )
        (folder / f"{name}.yaml").write_text(text)
    base = "model: ./checkpoint\nmax_sequence: 256\nmax_requests: 1\nworkload: {prompt: 16, generate: 16}\n"
    (folder / "int4.yaml").write_text(f"{base}dtype: float32\nquantize: int4\n")
    for dtype in ("float16", "bfloat16"):
        (folder / f"{dtype}.yaml").write_text(f"{base}dtype: {dtype}\n")


def compile_command(precision: str, devices: str, *options: str) -> list[str]:
    """The command line of one compile."""
    model = [f"{precision}.yaml", "--target", f"{devices}.yaml", "-o", f"build-{precision}"]
    return [sys.executable, "-m", "partc.cli", "compile", *model, *options]


def measure_int4(folder: Path) -> Iterator[Measured]:
    """The import, a compile with the import kept, one with other links, a token, and `cp` of the same bytes."""
    command, build = compile_command("int4", "fast"), folder / "build-int4"
    yield measure("int4: import", [*command[:3], "lower", "int4.yaml"], folder)
    compiled = measure("int4: compile", command, folder)
    yield replace(compiled, bytes=size_of(build))
    yield measure("int4: other links", compile_command("int4", "slow"), folder)
    prompt = ["--token-ids", "1,2,3,4", "--tokens", "1", "--json", "--no-record"]
    yield measure("int4: one token through the ring", [*command[:3], "run", str(build), *prompt], folder)
    print(json.loads((folder / "log.txt").read_text())["requests"][0]["tokens"], flush=True)
    yield from _measure_cp("int4: cp of the bundle", build, folder)
    shutil.rmtree(build)


def measure_stored(folder: Path, dtype: str, devices: str) -> Iterator[Measured]:
    """The import, a compile with the import kept, and `cp` of as many bytes: those of the checkpoint."""
    command, build = compile_command(dtype, devices), folder / f"build-{dtype}"
    yield measure(f"{dtype}: import", [*command[:3], "lower", f"{dtype}.yaml"], folder)
    compiled = measure(f"{dtype}: compile", command, folder)
    yield replace(compiled, bytes=size_of(build))
    shutil.rmtree(build)
    yield from _measure_cp(f"{dtype}: cp of the checkpoint", folder / "checkpoint", folder)


def _measure_cp(what: str, source: Path, folder: Path) -> Iterator[Measured]:
    yield replace(measure(what, ["cp", "-r", str(source), "copy"], folder), bytes=size_of(source))
    shutil.rmtree(folder / "copy")


PRECISIONS: dict[str, Callable[[Path], Iterator[Measured]]] = {
    "int4": measure_int4,
    "float16": partial(measure_stored, dtype="float16", devices="fast"),
    "bfloat16": partial(measure_stored, dtype="bfloat16", devices="cuda"),
}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="7B")
    parser.add_argument("--only", choices=PRECISIONS, help="one precision instead of all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    folder, shape = arguments.folder.resolve(), SHAPES[arguments.shape]
    if not (folder / "checkpoint").is_dir():
        make_checkpoint(folder / "checkpoint", shape)
    write_inputs(folder, shape)
    for name in (*(f"build-{precision}" for precision in PRECISIONS), "copy", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])  # the commands run in `folder`
    found = []
    for precision in [arguments.only] if arguments.only else PRECISIONS:
        for item in PRECISIONS[precision](folder):
            found.append(item)
            print(_line(item), flush=True)
    gguf = gguf_bytes(shape)
    print(f"checkpoint {size_of(folder / 'checkpoint') / 1e9:.2f} GB; Q4_0 GGUF would be {gguf / 1e9:.3f} GB")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(item) for item in found], indent=1) + "\n")


def _line(item: Measured) -> str:
    memory = f"peak {item.peak_bytes / 1e6:6.0f} MB (anonymous {item.peak_anonymous_bytes / 1e6:6.0f})"
    written = f"  wrote {item.bytes / 1e9:.3f} GB" if item.bytes else ""
    return f"{item.what:36} {item.wall_s:7.1f} s wall  {item.cpu_s:7.1f} s CPU  {memory}{written}"


if __name__ == "__main__":
    main()
