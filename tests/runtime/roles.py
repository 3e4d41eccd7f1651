"""Roles of small rings, made from the text of their programs alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from partc.format.build import Build, EngineSpec, Memory, Model, Port, State, Submodule, TensorType
from partc.format.dims import Shape, cut_dim
from partc.format.placement import Placement, seal_placement, stages_of
from partc.format.program import Cut, Emit, Instruction, Join, Program, Run, Sample
from partc.format.role import Role
from partc.runtime.engines.contract import Engine, load_engine

PLAN = hashlib.sha256(b"plan").hexdigest()
VOCABULARY, LENGTH = 17, 24
IDS = TensorType("int64", ("batch", "sequence"))
HIDDEN = TensorType("float32", ("batch", "sequence", 2))
LOGITS = TensorType("float32", ("batch", 1, VOCABULARY))
TOKEN = TensorType("int64", ("batch",))
PICTURE = TensorType("float32", (1, 3))
"""Type of the tensor that goes in the place of placeholders."""

Kind = Literal["rows", "whole"]
Programs = Mapping[str, Mapping[str, str]]
"""Device → phase → text; the first device is the source."""


def roles_of(
    programs: Programs,
    *,
    max_batch: int = 1,
    max_requests: int = 1,
    step_requests: int = 1,
    step_tokens: Sequence[tuple[int, int]] = (),
    prompt_chunk: int | None = None,
    prompt_steps: Sequence[tuple[int, int]] = (),
    types: Mapping[str, TensorType] = {},
    eos: tuple[int, ...] = (),
    predicted: Mapping[str, float] = {},
    max_sequence: int = LENGTH,
    others: Sequence[Programs] = (),
    kinds: Mapping[str, Sequence[Kind]] = {},
    picture: tuple[str, int, int] | None = None,
) -> dict[str, Role]:
    """The roles of all devices.

    `input_ids` is the input; what is sampled are tokens, what they are sampled from are logits, and all other values
    are float32[batch, sequence, 2], unless `types` says otherwise. Every sub-module has a state of rows, or one of each
    of its `kinds`; one that is called with different values has none, and its own are `NAME.0`, `NAME.1`, …. Devices
    hold what they run in `others` as well, which are placements that may follow. A `picture` is the name of a second
    input, float32[1, 3], the token in whose place its features go, and how many of these they take.
    """
    model = Model(
        name="tiny", task="text-generation", dtype="float32", max_sequence=max_sequence, max_batch=max_batch,
        max_requests=max_requests, vocab_size=VOCABULARY, eos_token_ids=eos, pad_token_id=0, bos_token_id=None,
        labels=None, prompt_chunk=prompt_chunk, prompt_steps=tuple(prompt_steps), prefix_reuse=not kinds,
        drafts=not kinds, step_requests=step_requests, step_tokens=tuple(step_tokens),
    )  # fmt: skip
    if picture is not None:
        name, token, rows = picture
        task = "image-text-to-text"
        model = replace(model, task=task, placeholder_token=token, placeholders=rows, prefix_reuse=False)
        types = {**types, name: PICTURE}
    devices = dict.fromkeys(device for each in (programs, *others) for device in each)
    placements = [placement_of(each, devices, predicted) for each in (programs, *others)]
    known = {**_types(placements), **types}
    return {
        device: Role(_build(device, placements, model, known, kinds), placements[0]) for device in devices
    }


def placement_of(
    programs: Programs, devices: Iterable[str] = (), predicted: Mapping[str, float] = {}
) -> Placement:
    """The placement of programs; others of `devices` are idle in it."""
    ring = tuple(programs)
    phases = programs[ring[0]]
    return seal_placement(
        Placement(
            placement_id="",
            plan_id=PLAN,
            source=ring[0],
            ring=ring,
            stages=dict.fromkeys(phases, stages_of(ring)),
            programs={phase: {device: programs[device][phase] for device in ring} for phase in phases},
            addresses=dict.fromkeys((*ring, *devices)),
            predicted=predicted,
        )
    )


def _build(
    device: str,
    placements: Sequence[Placement],
    model: Model,
    types: Mapping[str, TensorType],
    kinds: Mapping[str, Sequence[Kind]],
) -> Build:
    phases = [programs for placement in placements for programs in placement.parsed.values()]
    items = [item for programs in phases for item in programs.get(device, ())]
    names = {name for item in items for name in (*item.reads, *item.writes)}
    runs = dict.fromkeys(item for item in items if isinstance(item, Run))
    states = {
        item.submodule: [*_states(item.submodule, kinds.get(item.submodule, ("rows",)), model.max_sequence)]
        for item in runs
    }
    modules = {item.submodule: _submodule(item, [*runs], states[item.submodule]) for item in runs}
    names |= {name for module in modules.values() for name in (*module.inputs, *module.outputs)}
    return Build(
        plan_id=PLAN,
        device=device,
        target="null",
        model=model,
        inputs=tuple(
            Port(name, types[name].dtype, types[name].shape)
            for name in types
            if name == "input_ids" or types[name] is PICTURE
        ),
        outputs=tuple(Port(name, TOKEN.dtype, TOKEN.shape) for name in types if types[name] is TOKEN),
        dims={"batch": model.max_batch, "sequence": model.max_sequence},
        values={name: types[name] for name in sorted(names & types.keys())},
        submodules=tuple(modules.values()),
        engine=EngineSpec("null", "cpu", 1),
        memory=Memory(0, 0, 0, 0),
        toolkit={},
        files={},
        digest="",
    )


def _submodule(item: Run, runs: Sequence[Run], states: Sequence[State]) -> Submodule:
    own = _own(item, runs)
    if own != item:
        return Submodule(item.submodule, "", (), own.inputs, own.outputs)
    return Submodule(item.submodule, "", (), item.inputs, item.outputs, tuple(states))


def _states(submodule: str, kinds: Sequence[Kind], length: int) -> Iterator[State]:
    """`NAME.state`, and `NAME.more` behind it."""
    for name, kind in zip(("state", "more"), kinds, strict=False):
        shape: Shape = ("batch", length, 4) if kind == "rows" else ("batch", 4)
        yield State(f"{submodule}.{name}", name, f"{name}.out", "float32", shape, kind)


def _own(item: Run, runs: Iterable[Run]) -> Run:
    """The call with the sub-module's own values."""
    if sum(run.submodule == item.submodule for run in runs) == 1:
        return item
    names = [f"{item.submodule}.{place}" for place in range(len(item.inputs) + len(item.outputs))]
    return Run(item.submodule, tuple(names[: len(item.inputs)]), tuple(names[len(item.inputs) :]))


def _types(placements: Sequence[Placement]) -> dict[str, TensorType]:
    items = [item for placement in placements for program in _all(placement) for item in program]
    runs = dict.fromkeys(item for item in items if isinstance(item, Run))
    every = [*items, *(_own(run, runs) for run in runs)]
    found = {name: HIDDEN for item in every for name in (*item.reads, *item.writes)}
    for item in items:
        found |= _special(item)
    return {**found, "input_ids": IDS, "position": TOKEN}


def _special(item: Instruction) -> dict[str, TensorType]:
    match item:
        case Sample(logits, token):
            return {logits: LOGITS, token: TOKEN}
        case Cut(parts=parts, axis=axis) | Join(parts=parts, axis=axis):
            return {name: _part(place, len(parts), axis) for place, name in enumerate(parts)}
        case Emit(values):
            return dict.fromkeys(values, TOKEN)
        case _:
            return {}


def _part(place: int, count: int, axis: int) -> TensorType:
    sizes = list(HIDDEN.shape)
    sizes[axis] = cut_dim(sizes[axis], place, count)
    return TensorType(HIDDEN.dtype, tuple(sizes))


def _all(placement: Placement) -> list[Program]:
    return [program for programs in placement.parsed.values() for program in programs.values()]


def null_engine(role: Role) -> Engine:
    """An engine that computes something that depends on all of its inputs and on its state."""
    return load_engine(role, Path())


# -- rings


def both(text: str) -> dict[str, str]:
    """One program for both phases."""
    return {"prefill": text, "decode": text}


def chain(text: str) -> Programs:
    """The programs of a chain of sub-modules: `DEVICE SUBMODULE …, DEVICE …`, the source first."""
    stages = [stage.split() for stage in text.split(",")]
    owners = [(device, name) for device, *names in stages for name in names]
    source, last = owners[0][0], owners[-1][0]
    lines: dict[str, list[str]] = {device: [] for device, _ in owners}
    for before, (device, name), behind in zip([None, *owners], owners, [*owners[1:], None], strict=False):
        lines[device] += _stage(before, device, name, behind)
    lines[last].append("sample logits -> token")
    if last != source:
        lines[last].append(f"send token to {source}")
        lines[source].append(f"recv token from {last}")
    lines[source].append("emit token")
    return {device: both("\n".join(program)) for device, program in lines.items()}


def _stage(
    before: tuple[str, str] | None, device: str, name: str, behind: tuple[str, str] | None
) -> Iterator[str]:
    """One sub-module, with the messages around it."""
    read = "input_ids" if before is None else f"{before[1]}_out"
    if before is not None and before[0] != device:
        yield f"recv {read} from {before[0]}"
    yield f"run {name} ({read}) -> ({'logits' if behind is None else f'{name}_out'})"
    if behind is not None and behind[0] != device:
        yield f"send {name}_out to {behind[0]}"


ONE: Programs = {"a": both("run p0 (position, input_ids) -> (logits)\nsample logits -> token\nemit token")}
"""A device alone."""

THREE: Programs = {
    "a": both(
        "run head (position, input_ids) -> (h, r)\nsend h to b\nsend r to c\nrecv token from c\nemit token"
    ),
    "b": both("recv h from a\nrun body (position, h) -> (m)\nsend m to c"),
    "c": both(
        "recv r from a\nrecv m from b\nrun tail (position, m, r) -> (logits)\nsample logits -> token\nsend token to a"
    ),
}
"""a, b, c; a residual goes from a to c."""
FOUR: Programs = {
    "a": both(
        "run p0 (position, input_ids) -> (h, r)\nsend h to b\nsend r to d\nrecv token from d\nemit token"
    ),
    "b": both("recv h from a\nrun p1 (position, h) -> (m, s)\nsend m to c\nsend s to d"),
    "c": both("recv m from b\nrun p2 (position, m) -> (n)\nsend n to d"),
    "d": both(
        "recv r from a\nrecv n from c\nrecv s from b\nrun p3 (position, n, r, s) -> (logits)\nsample logits -> token\n"
        "send token to a"
    ),
}
"""a, b, c, d; residuals skip one device, and two."""
RETURNING: Programs = {
    "a": both(
        "run p0 (position, input_ids) -> (v, w)\nsend w to b\nsend v to c\nrecv x from b\n"
        "run p4 (position, x) -> (y)\nsend y to b\nrecv token from b\nemit token"
    ),
    "b": both(
        "recv w from a\nrun p1 (position, w) -> (x)\nsend x to a\nrecv r from c\nrun p3 (position, r) -> (q)\n"
        "recv y from a\nrun p5 (position, q, y) -> (logits)\nsample logits -> token\nsend token to a"
    ),
    "c": both("recv v from a\nrun p2 (position, v) -> (r)\nsend r to b"),
}
"""a, b, c, b, a, b: messages of a step to b come in any order."""
LOCAL: Programs = {
    "a": both(
        "run p0 (position, input_ids) -> (h)\nsend h to b\nrecv n from c\nrun p3 (position, n) -> (logits)\n"
        "sample logits -> token\nemit token"
    ),
    "b": both("recv h from a\nrun p1 (position, h) -> (m)\nsend m to c"),
    "c": both("recv m from b\nrun p2 (position, m) -> (n)\nsend n to a"),
}
"""a, b, c, a: the source samples."""
SHARED: Programs = {
    "a": both(
        "run p0 (position, input_ids) -> (h)\nsend h to b\nsend h to c\nrun p1 (position, h) -> (u)\nrecv v from b\n"
        "recv w from c\nadd u, v, w -> s\nsend s to b\nrun p4 (position, s) -> (x)\nrecv y from b\nadd x, y -> z\n"
        "run p6 (position, z) -> (logits)\nsample logits -> token\nemit token"
    ),
    "b": both(
        "recv h from a\nrun p2 (position, h) -> (v)\nsend v to a\nrecv s from a\nrun p5 (position, s) -> (y)\n"
        "send y to a"
    ),
    "c": both("recv h from a\nrun p3 (position, h) -> (w)\nsend w to a"),
}
"""a, b and c at once, and what they make is summed; then a and b."""
TILES: Programs = {
    "a": both(
        "run p0 (position, input_ids) -> (h)\ncut h -> h.0, h.1 along 1\nsend h.1 to b\nrun p1 (h.0) -> (u.0)\n"
        "run p1 (h.1) -> (u.1)\njoin u.0, u.1 -> u along 1\nrecv v.1 from b\njoin u.0, v.1 -> v along 1\n"
        "add u, v -> z\nrun p3 (position, z) -> (logits)\nsample logits -> token\nemit token"
    ),
    "b": both("recv h.1 from a\nrun p2 (h.1) -> (v.1)\nsend v.1 to a"),
}
"""a computes two tiles of rows with one sub-module, and b one of them; in a step of one row the first is empty."""
RINGS = {
    "three": THREE,
    "four": FOUR,
    "returning": RETURNING,
    "local": LOCAL,
    "shared": SHARED,
    "tiles": TILES,
}
