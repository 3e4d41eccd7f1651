"""The files that contestants load: made where they are missing, each by a process of its own, and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.bench.llamas import WEIGHTS, add_tokenizer
from tests.bench.random_models import MODELS
from tests.bench.speed.outputs import expected_file
from tests.bench.speed.places import DEVICES, Cell, bundles, checkpoint

SEQUENCE = 2176
"""The longest context, and room for what comes behind."""


class MakingError(Exception):
    """Something could not be made; with the last lines of what tried to."""


class Files(Protocol):
    """The files that a contestant loads."""

    def path(self, cell: Cell) -> Path:
        """File or folder."""

    def make(self, cell: Cell) -> None:
        """Make them there; the folder around exists."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of transformers."""

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        return checkpoint(cell.place)

    def make(self, cell: Cell) -> None:
        """They are what everything else is made of."""


@dataclass(frozen=True)
class Gguf:
    """A file of llama.cpp: float32 by our own converter, the others from that by llama.cpp."""

    types: Mapping[str, str]
    """Format → what llama.cpp calls the one of its own that stands beside it."""

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        return cell.place / "gguf" / f"{self.types[cell.kind]}.gguf"

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        plain, kind = cell.place / "gguf" / "F32.gguf", self.types[cell.kind]
        if not plain.exists():
            _python("tests.bench.speed.gguf_file", str(checkpoint(cell.place)), str(plain))
        if kind != "F32":
            _python("tests.bench.speed.gguf_file", str(plain), str(self.path(cell)), kind)


@dataclass(frozen=True)
class IkGguf(Gguf):
    """A file of ik_llama.cpp, made by the program in its wheel."""

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        return cell.place / "ik" / f"{self.types[cell.kind]}.gguf"

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        plain = cell.place / "gguf" / "F32.gguf"
        if not plain.exists():
            plain.parent.mkdir(exist_ok=True)
            _python("tests.bench.speed.gguf_file", str(checkpoint(cell.place)), str(plain))
        _python("ik_llama_cpp.quantize", "quantize", str(plain), str(self.path(cell)), self.types[cell.kind])


@dataclass(frozen=True)
class Genai:
    """A model of onnxruntime-genai's own builder; block and accuracy level are its defaults on a CPU, said aloud."""

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        return cell.place / "genai" / cell.kind

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        arguments = ["-i", str(checkpoint(cell.place)), "-o", str(self.path(cell)), "-e", "cpu"]
        precision = "fp32" if cell.kind == "float32" else cell.kind
        arguments += ["-p", precision, "-c", str(cell.place / "genai" / "cache")]
        if cell.kind != "float32":
            arguments += ["--extra_options", "block_size=32", "accuracy_level=4"]
        _python("onnxruntime_genai.models.builder", *arguments)


@dataclass(frozen=True)
class OpenVino:
    """A graph of OpenVINO's operators, with its weights."""

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        return cell.place / "openvino" / cell.kind

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        _python(
            "tests.bench.speed.openvino_file", str(checkpoint(cell.place)), str(self.path(cell)), cell.kind
        )


@dataclass(frozen=True)
class Bundle:
    """What `partc compile` makes for a ring of equal devices of one thread, in balance."""

    target: str
    devices: int = 1
    block: int = 32
    """Weights of int4 that share a scale."""
    cache: str = "none"
    """What attention keeps, as model.yaml says it."""

    @property
    def scale_bytes(self) -> int:
        """The size of such a scale as the target stores it."""
        return 2 if self.target == "tvm" else 4

    def weight_bytes(self, kind: str) -> float:
        """Bytes a weight, scales included; those of int8, one an output, are left out."""
        return {"float32": 4.0, "int8": 1.0, "int4": 0.5 + self.scale_bytes / self.block}[kind]

    def cache_bytes(self, head: int) -> float:
        """Bytes a number of the cache; with one byte each, every `head` of them have a scale."""
        return 4.0 if self.cache == "none" else 1.0 + 4.0 / head

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        features = cell.features if self.target == "tvm" else None
        words = [self.target, *(features or ()), *([str(self.block)] if self.block != 32 else [])]
        words += [] if self.cache == "none" else ["cache", self.cache]
        return bundles(cell) / "-".join(words) / f"{self.devices}"

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        out = self.path(cell)
        model, devices = out.with_name("model.yaml"), out.with_name(f"{self.devices}.yaml")
        model.write_text(self.model_yaml(cell))
        devices.write_text(self.devices_yaml(cell))
        _python("partc.cli", "compile", str(model), "--target", str(devices), "-o", str(out))
        ring = json.loads((out / "devices" / "a" / "placement.json").read_text())["ring"]
        if len(ring) != self.devices:
            raise MakingError(f"the plan uses {len(ring)} of {self.devices} devices")

    def model_yaml(self, cell: Cell) -> str:
        """model.yaml of such a bundle."""
        weights = {"float32": "none", "int8": "int8", "int4": f"int4, block: {self.block}"}[cell.kind]
        return (
            f"model: {checkpoint(cell.place).resolve()}\ntask: text-generation\ndtype: float32\n"
            f"quantize: {{weights: {weights}, cache: {self.cache}}}\nmax_requests: 2\nmax_sequence: {SEQUENCE}\n"
            "workload: {prompt: 64, generate: 128}\n"
        )

    def devices_yaml(self, cell: Cell) -> str:
        """devices.yaml of such a bundle."""
        arch = "arch: host"
        if self.target == "tvm" and cell.features is not None:
            arch = f"options: {{features: [{', '.join(cell.features)}]}}"
        figures = "threads: 1, flops: 60 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 32 GB"
        lines = [
            f"  {name}: {{target: {self.target}, {arch}, {figures}}}\n" for name in DEVICES[: self.devices]
        ]
        links = "links:\n  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}\n"
        return f"source: a\nobjective: throughput\ndevices:\n{''.join(lines)}{links}"


_STORED = {"Q4_0": 0.5625, "Q4_K_S": 0.5625 + 4 / 32, "Q8_0": 1.0625, "Q6_K": 1.125}
"""What the matrices of a file of llama.cpp mostly are → bytes a weight when partc keeps it, offsets included."""


@dataclass(frozen=True)
class StoredBundle(Bundle):
    """The same of a file that ik_llama.cpp has quantised, whose integers stay as they are."""

    file: IkGguf = IkGguf({})

    def weight_bytes(self, kind: str) -> float:
        """See `Bundle`."""
        return _STORED[self.file.types[kind]]

    def path(self, cell: Cell) -> Path:
        """See `Files`."""
        plain = super().path(cell)
        return plain.parent.with_name(f"{self.file.types[cell.kind]}-{plain.parent.name}") / plain.name

    def make(self, cell: Cell) -> None:
        """See `Files`."""
        ensure(self.file, cell)
        super().make(cell)

    def model_yaml(self, cell: Cell) -> str:
        """See `Bundle`."""
        return (
            f"model: {{gguf: {self.file.path(cell).resolve()}}}\ndtype: float32\nquantize: stored\n"
            f"max_requests: 2\nmax_sequence: {SEQUENCE}\nworkload: {{prompt: 64, generate: 128}}\n"
        )


def ensure(files: Files, cell: Cell) -> None:
    """Make what is not there.

    Raises:
        MakingError: it could not be made.
    """
    make_random(cell.place)
    path = files.path(cell)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"making {path}", file=sys.stderr, flush=True)
    try:
        files.make(cell)
    except BaseException:
        _remove(path)
        raise


def make_random(place: Path) -> None:
    """The checkpoint, its tokenizer, and what it answers."""
    weights = checkpoint(place) / WEIGHTS
    if not weights.exists():
        place.mkdir(parents=True, exist_ok=True)
        print(f"making {checkpoint(place)}", file=sys.stderr, flush=True)
        _python("tests.bench.speed.make", str(place))
    if not (checkpoint(place) / "tokenizer.json").exists():
        add_tokenizer(checkpoint(place), MODELS[place.name].config["vocab_size"])
    expected = expected_file(checkpoint(place))
    if not expected.exists():
        _python("tests.bench.speed.outputs", str(checkpoint(place)), str(expected))


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
    MODELS[Path(sys.argv[1]).name].make_checkpoint(Path(sys.argv[1]))
