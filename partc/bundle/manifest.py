"""Makes manifest.json; the format stands in docs/bundle.md and, for programs, in `manifest.schema.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partc.bundle.hashing import hash_data
from partc.bundle.programs import traffic_of
from partc.config.devices import DevicesConfig
from partc.errors import InternalError
from partc.format.dims import element_count
from partc.format.program import print_program
from partc.ir.graph import Graph, ModelInfo, Module, Part, Value
from partc.ir.plan import PlanFile, plain
from partc.ir.types import BY_SHORT
from partc.ir.weights import stored
from partc.pipeline.contract import Artifact
from partc.plan.stages import held
from partc.runtime.manifest import FORMAT, seal

Json = dict[str, Any]

PROMPT_CHUNK = 64
"""Tokens of a prompt that go through a ring at once: enough for a CPU's matrix products to be nearly as fast as with
more, and so few that the devices work at the same time for most of a prompt of a few hundred."""
PROMPT_CHUNK_ALONE = 128
"""The same for a single device that computes on its CPU, where nothing flows at the same time.

onnxruntime's attention computes the whole square of a step's scores, half of which the mask hides; in parts it computes
less of that half, and the scores stay in the caches. A prompt of 512 on one thread of an x86, against one step:
1.00-1.01 times as fast with float32 weights, 1.10-1.11 with int8, 1.05-1.07 with int4 (12 layers of 768), 1.00 with
int4 at 22 layers of 2048. Parts of 64 gave 0.93-0.96, 1.06 and 1.04: too few rows for fast matrix products.
"""
_CPU_PROVIDERS = frozenset({"cpu", "xnnpack"})
"""Of the engines that can take parts: whose attention and products run on the CPU. A GPU alone wants long steps."""


@dataclass(frozen=True)
class EmittedPart:
    """One device whose files are written."""

    part: Part
    artifact: Artifact
    files: Mapping[str, Json]
    """Path → {sha256, bytes}."""


def build_manifests(
    module: Module, emitted: Sequence[EmittedPart], devices: DevicesConfig | None
) -> dict[str, Json]:
    """Device → its manifest, sealed; all have the same plan id.

    The plan id is the SHA-256 of plan.json and of all manifests (which hold the hash of every file) without
    addresses: a device that moves stays the same build.
    """
    ring = [item.part.device for item in emitted]
    model = _model_facts(module, emitted)
    plain = {item.part.device: {**model, **_device_facts(module, item, ring, devices)} for item in emitted}
    identity = {"plan": (module.plan or PlanFile()).to_json(), "devices": plain}
    endpoints = {name: devices.devices[name].address if devices else None for name in ring}
    fields = {"plan_id": hash_data(identity), "endpoints": endpoints}
    return {device: seal({**facts, **fields}) for device, facts in plain.items()}


def _model_facts(module: Module, parts: Sequence[EmittedPart]) -> Json:
    """What all devices of a build have in common."""
    info, source = module.info, parts[0]
    emitted = traffic_of(source.part.programs)
    return {
        "format": FORMAT,
        "epoch": 0,
        "source": source.part.device,
        "model": {
            "name": info.name,
            "task": info.task,
            "dtype": BY_SHORT[info.dtype].long,
            "max_sequence": info.max_sequence,
            "max_batch": info.max_batch,
            "max_requests": info.max_requests,
            "vocab_size": info.vocab_size,
            "eos_token_ids": list(info.eos_token_ids),
            "pad_token_id": info.pad_token_id,
            "bos_token_id": info.bos_token_id,
            "labels": list(info.labels) if info.labels is not None else None,
            "uniform_positions": info.uniform_positions,
            "prompt_chunk": _prompt_chunk(parts, info),
        },
        "inputs": [{"name": v.name, **tensor_type(v)} for v in module.graph.inputs if not v.is_step],
        "outputs": [{"name": name, **_type_of(name, module, source.part.graphs)} for name in emitted.emitted],
        "dims": _dims(info),
        "predicted": _predicted(module.plan, info),
        "verified_on_hardware": False,
    }


def _prompt_chunk(parts: Sequence[EmittedPart], info: ModelInfo) -> int | None:
    """Tokens of a step at most; None where prompts go in one step.

    An engine that says nothing of it can do no part of a prompt behind another; all others can for one sequence.
    """
    states = [item for item in parts if any(graph.states() for graph in item.part.graphs)]
    size = PROMPT_CHUNK if len(parts) > 1 else _prompt_chunk_alone(parts[0].artifact)
    can = all("chunked_prefill" in item.artifact.engine for item in states)
    return size if states and can and size is not None and info.max_sequence > size else None


def _prompt_chunk_alone(artifact: Artifact) -> int | None:
    return PROMPT_CHUNK_ALONE if artifact.engine.get("provider") in _CPU_PROVIDERS else None


def _device_facts(module: Module, item: EmittedPart, ring: list[str], devices: DevicesConfig | None) -> Json:
    part, traffic = item.part, traffic_of(item.part.programs)
    given = {value.name for value in module.graph.inputs}
    values = [name for name in traffic.values if name not in given]
    return {
        "device": part.device,
        "target": part.target,
        "ring": ring,
        "values": {name: _type_of(name, module, part.graphs) for name in values},
        "submodules": item.artifact.submodules,
        "engine": item.artifact.engine,
        "programs": {phase: print_program(program) for phase, program in part.programs.items()},
        "peers": {"receive": list(traffic.receive), "send": list(traffic.send)},
        "memory": _memory(module, part, devices),
        **_overlap(module.plan, part.device),
        "toolkit": item.artifact.toolkit,
        "files": dict(item.files),
    }


def tensor_type(value: Value) -> Json:
    """`{dtype, shape}` of a value."""
    if value.dtype is None or value.shape is None:
        raise InternalError(
            f"%{value.name} goes from device to device but has no size", hint="run infer-sizes first"
        )
    return {"dtype": BY_SHORT[value.dtype].long, "shape": list(value.shape)}


def _type_of(name: str, module: Module, graphs: Sequence[Graph]) -> Json:
    # The whole graph counts where it has the name: what a target makes inside one graph may be called as a value
    # between others is.
    known = {value.name: value for owner in (*graphs, module.graph) for value in owner.values()}
    if name in known:
        return tensor_type(known[name])
    # What no graph has is the token: sampled from the logits, here or on the device that sends it.
    return {"dtype": "int64", "shape": ["batch"]}


def _dims(info: ModelInfo) -> dict[str, int]:
    own = {} if info.task == "graph" else {"batch": info.max_batch, "sequence": info.max_sequence}
    return {**own, **info.dims}


def _predicted(plan: PlanFile | None, info: ModelInfo) -> dict[str, float]:
    """Seconds of one whole step of each phase (`prefill_s`, `decode_s`) and the tokens of that prefill.

    Empty without a plan: runners then have nothing to measure patience by.
    """
    phases = plan.predicted.phases if plan and plan.predicted else ()
    names = {"step": "prefill"}
    times = {f"{names.get(item.phase, item.phase)}_s": float(item.latency_s) for item in phases}
    return {**times, "prefill_tokens": float(info.prompt)} if times and info.has_states else times


def _memory(module: Module, part: Part, devices: DevicesConfig | None) -> Json:
    return {
        "budget_bytes": devices.usable_memory(part.device) if devices else None,
        "weights_bytes": weights_bytes(part.graphs),
        "state_bytes": state_bytes(part.graphs, module.info),
        "peak_bytes": _peak_bytes(module, part.device),
    }


def weights_bytes(graphs: Sequence[Graph]) -> int:
    """Bytes of the weights of one device; what is stored once counts once."""
    unique = {
        (stored(weight.source), weight.dtype): weight
        for graph in graphs
        for weight in graph.weights()
        if weight.source is not None
    }
    return sum(weight.bytes({}) for weight in unique.values())


def state_bytes(graphs: Sequence[Graph], info: ModelInfo) -> int:
    """Bytes of the states of one device: each request in flight has its own."""
    sizes = _dims(info)
    states = (state for graph in graphs for state in graph.states())
    each = (element_count(s.shape or (), sizes) * BY_SHORT[s.dtype or "f32"].bytes for s in states)
    return sum(each) * info.max_requests


def _overlap(plan: PlanFile | None, device: str) -> Json:
    """This device's part of the plan's overlap; nothing where none was planned."""
    if plan is None or plan.overlap is None:
        return {}
    own = plan.overlap.devices[device]
    shared = [plain(copy) for copy in plan.overlap.shared if device in copy.devices]
    return {"overlap": {"movable": [*own.movable], "unmovable": [*own.unmovable], "shared": shared}}


def _peak_bytes(module: Module, device: str) -> int | None:
    """Largest peak of activations of the device's sub-modules in any phase; None: not measured."""
    stages = module.plan.stages if module.plan else ()
    if not module.profile or not stages or stages[-1].last + 1 != len(module.profile):
        return None
    own = [module.profile[j] for j in held(stages).get(device, ())]
    peaks = [cost.peak_bytes for item in own for cost in item.phases.values()]
    return max(peaks, default=0) if all(math.isfinite(peak) for peak in peaks) else None
