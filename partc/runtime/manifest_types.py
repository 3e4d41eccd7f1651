"""What a manifest says, as frozen dataclasses; docs/bundle.md describes the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from partc.format.dims import Shape, evaluate
from partc.format.program import Emit, Program, Sample

FORMAT = "partc-bundle/1"
MANIFEST_FILE = "manifest.json"
KEYS_FOLDER = "keys"
RECOMPILE = "compile again: partc compile MODEL --target DEVICES, and copy the whole device folder"
TASKS = ("text-generation", "text-classification", "feature-extraction", "graph")
STEP_INPUTS = {"position": ("batch",), "length": ("batch",), "index": ("sequence",)}
"""What every device has without a message, and its shape; all are int64."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and symbolic shape of a value."""

    dtype: str
    shape: Shape

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape under a binding of the symbols."""
        # Nearly every size is a symbol or a number, and this is asked for at every hop.
        return tuple(dims[dim] if dim in dims else evaluate(dim, dims) for dim in self.shape)  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class State:
    """What a sub-module keeps between steps; one buffer is both its input and its output."""

    name: str
    input: str
    output: str
    type: TensorType
    kind: Literal["rows", "whole"] = "rows"
    """`rows`: a step writes rows at `position`, as KV caches do; `whole`: a step rewrites all of it."""


@dataclass(frozen=True, slots=True)
class Submodule:
    """One file that the engine can compute."""

    name: str
    file: str
    weights: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of the whole model."""

    name: str
    task: str
    dtype: str
    max_sequence: int
    """Tokens of prompt and answer together."""
    max_batch: int
    """Sequences in one request."""
    max_requests: int
    """Requests in flight, each with states of its own."""
    vocab_size: int | None
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    bos_token_id: int | None
    labels: tuple[str, ...] | None
    uniform_positions: bool = False
    """Whether the sequences of a batch must be equally long, since the model has one position for all."""
    prompt_chunk: int | None = None
    """Tokens of a step at most where a longer prompt of one sequence goes through the ring in several; None: it does
    not."""

    @property
    def most_chunks(self) -> int:
        """Steps that a prompt takes at most."""
        return 1 if self.prompt_chunk is None else math.ceil(self.max_sequence / self.prompt_chunk)


@dataclass(frozen=True, slots=True)
class TvmFunctions:
    """The functions of one sub-module in a library of TVM."""

    entries: tuple[tuple[int, int], ...]
    """Batch and sequence of each."""
    weights: tuple[str, ...]
    """Names of the tensors that all of them take, in order."""


@dataclass(frozen=True, slots=True)
class TvmOptions:
    """What the engine `tvm` has to know."""

    platform: str
    """What the code was compiled for: `aarch64-linux-gnu` for instance."""
    processor: tuple[str, ...]
    """Features that the processor must have, as /proc/cpuinfo calls them."""
    functions: Mapping[str, TvmFunctions]
    """By sub-module."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What computes the sub-modules."""

    kind: str
    provider: str
    threads: int
    """0 leaves the number to the engine."""
    options: Mapping[str, Any]
    tvm: TvmOptions | None = None
    """`options`, where `kind` is tvm."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Digest and size of one file."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """manifest.json; the fields have its names."""

    plan_id: str
    epoch: int
    device: str
    target: str
    source: str
    ring: tuple[str, ...]
    model: Model
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    dims: Mapping[str, int]
    values: Mapping[str, TensorType]
    submodules: Mapping[str, Submodule]
    engine: EngineSpec
    programs: Mapping[str, Program]
    """By phase; `chunk` where prompts go in several steps, though the file leaves that to its readers."""
    endpoints: Mapping[str, str | None]
    receive: tuple[str, ...]
    send: tuple[str, ...]
    predicted: Mapping[str, float]
    files: Mapping[str, FileEntry]

    @property
    def is_source(self) -> bool:
        """Whether requests enter here."""
        return self.device == self.source

    @property
    def has_step_inputs(self) -> bool:
        """Whether there are step inputs (every task but `graph`)."""
        return self.model.task != "graph"

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """The type of every value that a program may name."""
        token = {
            name: TensorType("int64", ("batch",))
            for program in self.programs.values()
            for name in _token_names(program, self.model.task)
        }
        given = STEP_INPUTS if self.has_step_inputs else {}
        steps = {name: TensorType("int64", shape) for name, shape in given.items()}
        return {**steps, **token, **self.inputs, **self.outputs, **self.values}


def _token_names(program: Program, task: str) -> Iterator[str]:
    for instruction in program:
        if isinstance(instruction, Sample):
            yield instruction.token
        if isinstance(instruction, Emit) and task == "text-generation":
            yield from instruction.values
