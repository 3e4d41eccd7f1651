"""kernels.json: the kernel plan of a compiled library, which lists its kernels in the order of a step.

The library holds kernels alone; the plan says which of them compute a function of a sub-module, and where each finds
its tensors. Every size is a number. Whoever runs a plan reads it once, makes the arguments of all calls, and gives them
to `partc_run` of the library (`targets/tvm/loop/loop.c`). The file names no processor: it is the same for all.
For a GPU it has the launches of each kernel besides, and whoever runs it gives those to the driver.

docs/bundle.md describes the file; its tables and the JSON schema are made from these structs. The rules are in
`partc.format.kernel_plan_rules`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from partc.format.build import Count, Data, DType
from partc.format.dtypes import DTYPES, Array

KERNELS_FORMAT: Final = "partc-kernels/1"
KERNELS_FILE = "kernels.json"
"""It lies beside the library."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)", max_length=300)]
Sizes = Annotated[
    tuple[Annotated[int, Meta(ge=1, lt=2**31)], ...],
    Meta(max_length=16, description="Size of each axis."),
]
Room = Literal["parameter", "constant", "arena"]
Access = Literal["read", "write", "update"]


class KernelTensor(Data, frozen=True):
    """Element type and shape of a tensor without gaps."""

    dtype: DType
    shape: Sizes

    @property
    def bytes(self) -> int:
        """Size of its data."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class KernelParameter(KernelTensor, frozen=True):
    """A tensor that a kernel takes."""

    access: Access = "read"
    """`read`; `write`: the kernel makes all of it; `update`: the kernel changes a part of it in place."""


class Kernel(Data, frozen=True):
    """A kernel of the library: its symbol is `__tvm_ffi_` and its name."""

    parameters: tuple[KernelParameter, ...]
    """The tensors that it takes, in order."""


Grid = tuple[
    Annotated[int, Meta(ge=1, lt=2**31)],
    Annotated[int, Meta(ge=1, lt=2**16)],
    Annotated[int, Meta(ge=1, lt=2**16)],
]
Block = tuple[
    Annotated[int, Meta(ge=1, le=1024)],
    Annotated[int, Meta(ge=1, le=1024)],
    Annotated[int, Meta(ge=1, le=64)],
]


class KernelLaunch(Data, frozen=True):
    """One start of a function on a GPU."""

    function: Name
    """Its name in the code."""
    grid: Grid
    """Blocks along x, y and z."""
    block: Block
    """Threads of a block along x, y and z, 1,024 at most in all."""
    shared_bytes: Annotated[int, Meta(ge=0, lt=2**31)]
    """Memory of a block that the launch asks for, besides what the code declares itself."""
    arguments: tuple[Count, ...]
    """Numbers of the kernel's parameters, in the order in which the function takes their addresses."""


class KernelConstant(KernelTensor, frozen=True):
    """A tensor that stands in the plan itself."""

    data: bytes
    """Its elements in base64, least byte first."""

    @property
    def array(self) -> Array:
        """Its elements, which nobody may change."""
        return np.frombuffer(self.data, DTYPES[self.dtype]).reshape(self.shape)


class Place(Data, frozen=True, array_like=True):
    """The place of a tensor, written as a list: `["arena", 128]`."""

    room: Room
    """`parameter` of the function, `constant` of the plan, or `arena`."""
    at: Count
    """Number of the parameter or constant; offset in the arena, bytes."""


class KernelCall(Data, frozen=True):
    """One kernel, once."""

    kernel: Name
    """Its name in `kernels`."""
    arguments: tuple[Place, ...]
    """Where its parameters lie, in order."""


class KernelOutput(KernelTensor, frozen=True):
    """A result of a function."""

    place: Place
    """Where it lies until the next call of any function."""


class KernelFunction(Data, frozen=True):
    """One function of a sub-module, for one size of step."""

    parameters: tuple[KernelTensor, ...]
    """The sub-module's inputs, states and weights, in the order of build.json."""
    arena_bytes: Count
    """Memory for everything that lies between its parameters and outputs; a multiple of 64."""
    calls: tuple[KernelCall, ...]
    """One after the other; each begins when the one before has ended."""
    outputs: tuple[KernelOutput, ...]
    """In the order of build.json."""


Launches = Mapping[Name, tuple[KernelLaunch, ...]]


class KernelPlan(Data, frozen=True, kw_only=True):
    """kernels.json of one library."""

    format: Literal["partc-kernels/1"] = KERNELS_FORMAT
    """Name and version of the format."""
    kernels: Mapping[Name, Kernel]
    """By name."""
    constants: tuple[KernelConstant, ...]
    """Equal ones stand once; copy each to an address that is a multiple of 64."""
    functions: Mapping[Name, KernelFunction]
    """By name: `part_0_b2_s64` is `part_0` for 2 sequences of up to 64 tokens."""
    launches: Launches | UnsetType = UNSET
    """For a GPU: kernel → its launches, one after the other. For a processor there are none."""

    @property
    def arena_bytes(self) -> int:
        """Memory for the arena of any function: one step runs at a time."""
        return max((function.arena_bytes for function in self.functions.values()), default=0)

    def with_launches(self, launches: Launches) -> KernelPlan:
        """The same plan for a GPU."""
        return msgspec.structs.replace(self, launches=launches)

    def changed(self, function: KernelFunction) -> frozenset[int]:
        """Numbers of the parameters of a function that its kernels change in place."""
        return frozenset(
            place.at
            for call in function.calls
            for place, parameter in zip(call.arguments, self.kernels[call.kernel].parameters, strict=True)
            if place.room == "parameter" and parameter.access != "read"
        )


def kernel_plan_text(plan: KernelPlan) -> str:
    """The content of kernels.json: sorted keys, no spaces, a newline at its end; equal plans give equal text."""
    return _text(plan) + "\n"


def kernels_digest(kernels: Mapping[str, Kernel], launches: Launches | UnsetType = UNSET) -> bytes:
    """SHA-256 of `kernels` as they stand in kernels.json, and behind them of the launches that a GPU's plan has.

    The 32 bytes stand in the library, too.
    """
    texts = [_text(part) for part in (kernels, launches) if part is not UNSET]
    return hashlib.sha256("".join(texts).encode()).digest()


def _text(data: object) -> str:
    return json.dumps(msgspec.to_builtins(data), sort_keys=True, separators=(",", ":"))
