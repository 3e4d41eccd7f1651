"""build.json: what a compile made for one device and a re-plan cannot change.

docs/bundle.md describes the file; its tables and the JSON schema are made from these structs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from partc.errors import BundleError
from partc.format.build_rules import check_build
from partc.format.digests import data_digest
from partc.format.dims import size
from partc.format.dtypes import DTYPES
from partc.format.layouts import Layout, panel_shape
from partc.format.names import BUILD_FILE
from partc.format.prompt_steps import most_steps
from partc.format.reading import RECOMPILE, check_format, convert, read_object
from partc.format.readings import Limits
from partc.format.state_kinds import USUAL, StateKind
from partc.format.tasks import TASK_PATTERN, generates

BUILD_FORMAT: Final = "partc-build/2"

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
DeviceName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]
"""`$` alone matches before a last line end, too."""
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Positive = Annotated[int, Meta(ge=1, lt=2**53)]
TokenId = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # some checkpoints have ids below 0
Size = Count | str
"""See `partc.format.dims`."""
DType = Annotated[
    str, Meta(description="Element type, as numpy calls it.", extra_json_schema={"enum": sorted(DTYPES)})
]
Shape = Annotated[
    tuple[Size, ...],
    Meta(description="Size of each axis: a number, or an expression of the symbols in `dims`."),
]
Task = Annotated[str, Meta(pattern=TASK_PATTERN)]


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all structs of a bundle's JSON."""


class TensorType(Data, frozen=True):
    """Element type and symbolic shape of a value."""

    dtype: DType
    shape: Shape

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape under a binding of the symbols."""
        # Nearly every size is a symbol or a number, and this is asked for at every hop.
        return tuple(dims[dim] if dim in dims else size(dim, dims) for dim in self.shape)  # type: ignore[index]

    def bytes(self, dims: Mapping[str, int]) -> int:
        """The size under a binding of the symbols."""
        return math.prod(self.sizes(dims)) * DTYPES[self.dtype].itemsize


class Port(Data, frozen=True):
    """An input or an output of the whole model."""

    name: str
    """Name of the value."""
    dtype: DType
    shape: Shape

    @property
    def type(self) -> TensorType:
        """Without the name."""
        return TensorType(self.dtype, self.shape)


class State(Data, frozen=True):
    """A state that a sub-module keeps between steps; one buffer is both its input and its output."""

    name: str
    """Name of the state: `cache.0.key`, for instance."""
    input: str
    """The sub-module's input that it is bound to."""
    output: str
    """The sub-module's output that it is bound to."""
    dtype: DType
    shape: Shape
    kind: StateKind = USUAL
    """`rows`: a step writes rows at `position`, as KV caches do; `whole`: a step rewrites all of it."""
    layout: Layout = "plain"
    """How the engine holds it: `plain`, as the shape says; `panels`, [batch, heads, positions, d] as
    [batch, heads, positions / 16 rounded up, d, 16]."""

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return TensorType(self.dtype, self.shape)

    @property
    def buffer(self) -> TensorType:
        """Element type and shape of its buffer in the engine."""
        return TensorType(self.dtype, panel_shape(self.shape)) if self.layout == "panels" else self.type


class Submodule(Data, frozen=True):
    """One file that the engine can compute: consecutive sub-modules of the plan that no placement of the build cuts."""

    name: str
    """Its name in programs."""
    file: str
    """Its graph or its library, one of `files`."""
    weights: tuple[str, ...]
    """Files with its weights."""
    inputs: tuple[str, ...]
    """Values that it reads, without its states."""
    outputs: tuple[str, ...]
    """Values that it makes, without its states."""
    states: tuple[State, ...] = ()
    """Buffers that it keeps from step to step."""
    covers: tuple[Count, Count] | None = None
    """First and last of the plan's sub-modules that it computes, all of it or the part that its phase needs: what runs
    in first steps alone (`_once`) and what runs in all steps name the same ones; null: made without a plan."""


class Model(Data, frozen=True):
    """Facts of the whole model."""

    name: str
    """Name of the model, for people."""
    task: Task
    """One of `partc.format.tasks.TASKS`."""
    dtype: DType
    """Element type of weights and activations, before quantisation."""
    max_sequence: Positive
    """Tokens of prompt and answer together."""
    max_batch: Positive
    """Sequences in one request."""
    max_requests: Positive
    """Requests in flight, each with states of its own."""
    vocab_size: Count | None
    """Number of tokens; null where the model has none."""
    eos_token_ids: tuple[TokenId, ...]
    """Tokens that end an answer."""
    pad_token_id: TokenId | None
    """Token that fills up shorter prompts; null: none."""
    bos_token_id: TokenId | None
    """Token that begins a text; null: none."""
    labels: tuple[str, ...] | None
    """Names of the classes of a classifier."""
    start_tokens: tuple[TokenId, ...] = ()
    """Tokens that an answer begins behind where a source is read before; empty: it begins behind its prompt."""
    placeholder_token: TokenId | None = None
    """Token in whose place a row of features of a picture or of a sound goes; null: the model reads none."""
    placeholders: Count = 0
    """Rows of features of one picture or sound: a prompt has so many of these tokens, or none."""
    picture_size: tuple[Positive, Positive] | None = None
    """Height and width to which pictures are brought before the checkpoint's preprocessor takes them; null: it takes
    pictures of any size."""
    uniform_positions: bool = False
    """Whether the sequences of a batch must be equally long, since the model has one position for all."""
    prompt_chunk: Positive | None = None
    """Tokens of a step at most where a longer prompt of one sequence goes through the ring in several steps; null: it
    goes in one, or as `prompt_steps` has it."""
    prompt_steps: tuple[tuple[Positive, Positive], ...] = ()
    """Rows of a step of one sequence that there is code for, smallest first, each with the cost of such a step in
    thousandths of reading all weights once. A prompt of one sequence goes in the cheapest steps of these sizes; empty:
    a step may have any number of rows, and the parts of a prompt are of nearly equal length."""
    prefix_reuse: bool = False
    """Whether a prompt may go on behind the rows of another: all states have rows, and engines take it in parts."""
    drafts: bool = False
    """Whether steps may take guessed tokens: all states have rows, so that a request can be taken back."""
    step_requests: Positive = 1
    """Requests of one sequence each whose tokens one step may compute, so that weights are read once for all of them;
    1: every request has steps of its own."""
    step_tokens: tuple[tuple[Positive, Positive], ...] = ()
    """Consecutive tokens of a request that one step may compute, those behind the first guessed: the numbers that there
    is code for, smallest first, each with the cost of such a step in thousandths of that of one token. Empty: one."""

    @property
    def most_tokens(self) -> int:
        """Consecutive tokens of a request that one step computes at most."""
        return self.step_tokens[-1][0] if self.step_tokens else 1

    @property
    def most_rows(self) -> int:
        """Rows of one token each that a step has at most, of several requests or of one."""
        return max(self.step_requests, self.most_tokens)

    @property
    def generates(self) -> bool:
        """Whether it makes tokens, one after the other."""
        return generates(self.task)

    def before_answer(self, prompt: Sequence[int]) -> Sequence[int]:
        """The tokens that the answer to a prompt begins behind: it, or those of every answer to a source."""
        return self.start_tokens or prompt

    @property
    def goes_in_parts(self) -> bool:
        """Whether a prompt may take several steps."""
        return self.prompt_chunk is not None or bool(self.prompt_steps)

    @property
    def most_chunks(self) -> int:
        """Steps that a prompt takes at most."""
        if self.prompt_steps:
            return most_steps(self.max_sequence, self.prompt_steps)
        return 1 if self.prompt_chunk is None else math.ceil(self.max_sequence / self.prompt_chunk)


class LibraryFunctions(Data, frozen=True):
    """The functions of one sub-module in a compiled library."""

    entries: Annotated[tuple[tuple[Positive, Positive], ...], Meta(min_length=1)]
    """Batch and sequence of each."""
    weights: tuple[str, ...]
    """Names of the tensors that all of them take, in order."""


class LibraryOptions(Data, frozen=True):
    """Facts about the compiled libraries of a device."""

    platform: Annotated[str, Meta(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)+$")]
    """The machine that the code was compiled for: `aarch64-linux-gnu` for instance."""
    needs: tuple[str, ...]
    """Features that the processor must have, as /proc/cpuinfo calls them."""
    functions: Mapping[str, LibraryFunctions]
    """By sub-module."""


class EngineSpec(Data, frozen=True):
    """The engine that computes the sub-modules, and its options."""

    kind: str
    """`ort`, `plan` (a compiled library and the plan of its kernels), `gpu` (the same for a GPU) or `null`."""
    provider: str = "cpu"
    """The part of the engine that computes: `cpu`, `cuda`, `opencl`, `xnnpack`, …"""
    threads: Count = 0
    """0 leaves the number to the engine."""
    options: Mapping[str, Any] = {}
    """Options of onnxruntime's provider."""
    library: LibraryOptions | None = None
    """Facts for the engines `plan` and `gpu`; null for others."""
    chunked_prefill: bool | None = None
    """Whether a prompt may be given in several steps; false where an operator takes later ones of a batch of one only,
    null where there are no states."""


class Memory(Data, frozen=True):
    """Bytes that the plan reckons with."""

    budget_bytes: Count | None
    """Usable bytes of the device; null: not known."""
    weights_bytes: Count
    """Bytes of the weights."""
    state_bytes: Count
    """Bytes of the states of all `max_requests`."""
    peak_bytes: Count | None
    """Bytes of the largest activations; exact for the engine `plan`. Null: not measured."""
    mirror_bytes: Count = 0
    """Bytes of copies of other devices' rows."""


class Shared(Data, frozen=True):
    """A sub-module of the plan that two devices have memory for."""

    submodule: Count
    """Its number in the plan."""
    devices: Annotated[tuple[DeviceName, ...], Meta(min_length=2, max_length=2)]
    """The device that computes it as planned, then the neighbour that could."""


class Overlap(Data, frozen=True):
    """Sub-modules of the plan that this device and a neighbour both have memory for."""

    movable: tuple[Count, ...]
    """This device's own that a neighbour has memory for, and those of neighbours that it has memory for. Copies lie on
    disks only where `overlap` or `survive` in devices.yaml asks for them."""
    unmovable: tuple[Count, ...]
    """The device's others."""
    shared: tuple[Shared, ...]
    """One entry for every movable one."""


class FileEntry(Data, frozen=True):
    """Digest and size of one file."""

    sha256: Sha256
    """64 hexadecimal digits."""
    bytes: Count
    """Its size."""


class Build(Data, frozen=True, kw_only=True):
    """build.json of one device."""

    format: Literal["partc-build/2"] = BUILD_FORMAT
    """Name and version of the format."""
    plan_id: Sha256
    """SHA-256 over the build.json of all devices, without this key and `digest`; equal on all devices."""
    device: DeviceName
    """The device that this folder is for."""
    target: str
    """The back end that made the files."""
    model: Model
    """Facts of the whole model; equal on all devices."""
    inputs: tuple[Port, ...]
    """Tensors of a request, given on the source."""
    outputs: tuple[Port, ...]
    """Tensors that a request gets."""
    dims: Mapping[str, Positive]
    """The largest value of every symbol: no received tensor may be larger."""
    values: Mapping[str, TensorType]
    """Type of every value that the device's programs name."""
    submodules: tuple[Submodule, ...]
    """The files that the engine can compute, in the order of a step. Those that no program runs are copies, for the
    loss of another device."""
    engine: EngineSpec
    """The engine that computes them."""
    memory: Memory
    """Bytes that the plan reckons with, of what the programs as compiled run."""
    overlap: Overlap | None = None
    """Sub-modules that a neighbour has memory for, too; null: not planned."""
    limits: Limits | None = None
    """Limits at which its work shall move to other devices; null: none."""
    survives: tuple[DeviceName, ...] = ()
    """Devices after whose loss the ring goes on; the source has a placement for each in `placements/`."""
    toolkit: Mapping[str, str]
    """Versions of the software that the files were made for."""
    verified_on_hardware: bool = False
    """Whether somebody has run it on the device that it is for."""
    files: Mapping[str, FileEntry]
    """SHA-256 and size of every file of the folder but build.json, placement.json and keys/."""
    digest: Sha256
    """SHA-256 of the file's text without this key."""


def seal_builds(builds: Mapping[str, Build]) -> dict[str, Build]:
    """Device → its build, all with their common plan id, each with its digest."""
    plain = {device: _without(build_json(build), "plan_id", "digest") for device, build in builds.items()}
    plan_id = data_digest(plain)
    return {device: seal_build(replace(build, plan_id=plan_id)) for device, build in builds.items()}


def seal_build(build: Build) -> Build:
    """The same with its own digest, so that a flipped byte of the file itself is found as well."""
    return replace(build, digest=_digest(build_json(build)))


def build_json(build: Build) -> dict[str, Any]:
    """A build as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(build)
    return data


def _digest(raw: Mapping[str, Any]) -> str:
    return data_digest(_without(raw, "digest"))


def _without(raw: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in keys}


def load_build(folder: Path) -> Build:
    """Read and check `folder`/build.json, without opening the files that it names.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    path = folder / BUILD_FILE
    if not os.path.lexists(path):
        raise _missing(folder)
    return parse_build(read_object(path), str(path))


def parse_build(raw: Mapping[str, Any], where: str = BUILD_FILE) -> Build:
    """Check the content of a build.json.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    check_format(raw, BUILD_FORMAT, where)
    if "digest" in raw and raw["digest"] != _digest(raw):
        raise BundleError("the file is damaged: its digest does not fit", where=where, hint=RECOMPILE)
    build = convert(raw, Build, where)
    check_build(build, where)
    return build


def _missing(folder: Path) -> BundleError:
    if (folder / "manifest.json").exists():
        message = "a bundle of format 1 (manifest.json), which this partc does not read"
        return BundleError(message, where=str(folder), hint=RECOMPILE)
    hint = "--bundle takes the folder of one device: build/devices/NAME"
    return BundleError("no bundle: there is no build.json", where=str(folder), hint=hint)
