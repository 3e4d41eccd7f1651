"""The files that contestants load: made where they are missing, each by a process of its own, and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.llamas import SHAPES, WEIGHTS, add_tokenizer, make_checkpoint
from tests.bench.speed.places import DEVICES, GGUF_KINDS, bundle, checkpoint, genai, gguf

GENAI_PRECISIONS = {"float32": "fp32", "int8": "int8", "int4": "int4"}
QUANTIZE = {
    "float32": "none", "int8": "int8", "int4": "int4",
    "int4-64": "{weights: int4, block: 64}", "int4-128": "{weights: int4, block: 128}",
}  # fmt: skip
"""Format as it is stored → what model.yaml says."""
SEQUENCE = 640
"""The longest prompt and its answer."""


class MakingError(Exception):
    """Something could not be made; with the last lines of what tried to."""


class Files(NamedTuple):
    """The files that a contestant loads."""

    paths: Callable[[Path, str, int], Path]
    """(place, format, processes) → file or folder."""
    make: Callable[[Path, str, int], None]


def ensure(files: Files, place: Path, kind: str, processes: int) -> None:
    """Make what is not there.

    Raises:
        MakingError: it could not be made.
    """
    make_random(place)
    path = files.paths(place, kind, processes)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"making {path}", file=sys.stderr, flush=True)
    try:
        files.make(place, kind, processes)
    except BaseException:
        _remove(path)
        raise


def make_random(place: Path) -> None:
    """The checkpoint and its tokenizer."""
    weights = checkpoint(place) / WEIGHTS
    if not weights.exists():
        place.mkdir(parents=True, exist_ok=True)
        print(f"making {checkpoint(place)}", file=sys.stderr, flush=True)
        _python("tests.bench.speed.make", str(place))
    if not (checkpoint(place) / "tokenizer.json").exists():
        add_tokenizer(checkpoint(place), SHAPES[place.name]["vocab_size"])


def make_gguf(place: Path, kind: str, processes: int) -> None:
    """float32 by our own converter, the others from that by llama.cpp."""
    plain, out = gguf(place, "float32"), gguf(place, kind)
    if kind == "float32":
        _python("tests.bench.speed.gguf_file", str(checkpoint(place)), str(out))
        return
    ensure(GGUF, place, "float32", 1)
    _python("tests.bench.speed.gguf_file", str(plain), str(out), GGUF_KINDS[kind])


def make_genai(place: Path, kind: str, processes: int) -> None:
    """By its own builder; block and accuracy level are its defaults on a CPU, said aloud."""
    arguments = ["-i", str(checkpoint(place)), "-o", str(genai(place, kind)), "-e", "cpu"]
    arguments += ["-p", GENAI_PRECISIONS[kind], "-c", str(place / "genai" / "cache")]
    if kind != "float32":
        arguments += ["--extra_options", "block_size=32", "accuracy_level=4"]
    _python("onnxruntime_genai.models.builder", *arguments)


def make_bundle(place: Path, kind: str, processes: int) -> None:
    """By `partc compile`, for equal devices of one thread, in balance."""
    out = bundle(place, kind, processes)
    model, devices = out.with_name("model.yaml"), out.with_name(f"{processes}.yaml")
    model.write_text(
        f"model: {checkpoint(place).resolve()}\ntask: text-generation\ndtype: float32\n"
        f"quantize: {QUANTIZE[kind]}\nmax_requests: 2\nmax_sequence: {SEQUENCE}\n"
        "workload: {prompt: 64, generate: 128}\n"
    )
    figures = "target: ort, threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
    lines = [f"  {name}: {{{figures}}}\n" for name in DEVICES[:processes]]
    devices.write_text(
        f"source: a\nobjective: throughput\ndevices:\n{''.join(lines)}"
        "links:\n  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}\n"
    )
    _python("partc.cli", "compile", str(model), "--target", str(devices), "-o", str(out))
    ring = json.loads((out / "devices" / "a" / "placement.json").read_text())["ring"]
    if len(ring) != processes:
        raise MakingError(f"the plan uses {len(ring)} of {processes} devices")


CHECKPOINT = Files(lambda place, kind, processes: checkpoint(place), lambda place, kind, processes: None)
GGUF = Files(lambda place, kind, processes: gguf(place, kind), make_gguf)
GENAI = Files(lambda place, kind, processes: genai(place, kind), make_genai)
BUNDLE = Files(bundle, make_bundle)


def _python(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MakingError(_last(done.stderr.splitlines()) or f"{module} failed")


def _last(lines: Sequence[str]) -> str:
    return " / ".join(line.strip() for line in lines[-3:])


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


if __name__ == "__main__":
    make_checkpoint(Path(sys.argv[1]), Path(sys.argv[1]).name)
