"""A build that has something of everything, for tests of its readers."""

from __future__ import annotations

from typing import Any

from partc.format.build import (
    Build,
    EngineSpec,
    FileEntry,
    LibraryFunctions,
    LibraryOptions,
    Memory,
    Model,
    Overlap,
    Port,
    Shared,
    State,
    Submodule,
    TensorType,
    seal_build,
)
from partc.format.digests import data_digest
from partc.format.readings import Limits

_ENTRY = FileEntry("0" * 64, 12)


def build_of() -> Build:
    """The build of a device with a compiled library."""
    states = (
        State("cache.0.key", "key", "key.out", "float32", ("batch", 2, 24, 4), "rows", "panels"),
        State("conv", "conv", "conv.out", "float16", ("batch", 3), "whole"),
    )
    model = Model(
        name="t", task="text-generation", dtype="float32", max_sequence=24, max_batch=2, max_requests=3, vocab_size=17,
        eos_token_ids=(2, -3), pad_token_id=None, bos_token_id=1, labels=("x", "é"), prompt_chunk=7,
        prompt_steps=((1, 1350), (2, 1700), (9, 4150)), step_tokens=((2, 1100), (4, 1300)),
    )  # fmt: skip
    functions = {"p0": LibraryFunctions(((1, 1), (2, 64)), ("w",))}
    library = LibraryOptions("x86_64-linux", (), functions)
    return seal_build(
        Build(
            plan_id="a" * 64,
            device="a",
            target="tvm",
            model=model,
            inputs=(Port("input_ids", "int64", ("batch", "sequence")),),
            outputs=(Port("token", "int64", ("batch",)),),
            dims={"batch": 2, "sequence": 24},
            values={"h": TensorType("bfloat16", ("batch", "2*sequence + 1", 8))},
            submodules=(
                Submodule("p0", "library.so", ("weights/w",), ("input_ids",), ("h",), states, (0, 3)),
            ),
            engine=EngineSpec("plan", "cpu", 2, {"x": [1.5, None]}, library, True),
            memory=Memory(None, 1, 2, 3),
            overlap=Overlap((1,), (0,), (Shared(1, ("a", "b")),)),
            limits=Limits(battery=0.3, memory_bytes=5),
            survives=("b",),
            toolkit={"tvm": "0.27"},
            files={"library.so": _ENTRY, "weights/w": _ENTRY, "kernels.json": _ENTRY},
            digest="",
        )
    )


def resealed(data: Any) -> Any:
    """Damaged data with the digest that belongs to them, so that another fault is found."""
    rest = {key: item for key, item in data.items() if key != "digest"}
    return {**rest, "digest": data_digest(rest)} if "digest" in data else rest
