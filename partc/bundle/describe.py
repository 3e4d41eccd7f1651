"""Describes a build: makes build.json of every device and the placements; docs/bundle.md has the format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from partc.bundle.program_values import program_types
from partc.config.devices import DevicesConfig
from partc.errors import InternalError
from partc.format.build import (
    Build,
    FileEntry,
    Memory,
    Model,
    Overlap,
    Port,
    Shared,
    Submodule,
    TensorType,
    seal_builds,
)
from partc.format.build import State as StateSpec
from partc.format.build_rules import MOST_STEP_TOKENS
from partc.format.dims import element_count
from partc.format.layouts import Layout
from partc.format.placement import Placement, Stage, Stages, seal_placement, stages_of
from partc.format.plan import Loss, PlanFile, SharedStages, losses_of, mirrors_of
from partc.format.program import Emit, Instruction, Program, Run, kept_by, print_program
from partc.format.prompt_steps import useful
from partc.format.state_kinds import has_rows_alone
from partc.ir.graph import Graph, ModelInfo, Module, Part, State, Value, Weight
from partc.ir.types import BY_SHORT
from partc.ir.weights import stored
from partc.pipeline.contract import Artifact, Target
from partc.planner.model.patience_figures import placement_figures
from partc.planner.model.pieces import Piece, named_pieces, piece_name
from partc.planner.model.stages import devices_in

PROMPT_CHUNK = 64
"""Tokens of a prompt that go through a ring at once: enough for a CPU's matrix products to be nearly as fast as with
more, and so few that the devices work at the same time for most of a prompt of a few hundred."""


@dataclass(frozen=True)
class EmittedPart:
    """One device whose files are written."""

    part: Part
    target: Target
    artifact: Artifact
    files: Mapping[str, FileEntry]


def describe_builds(
    module: Module, emitted: Sequence[EmittedPart], devices: DevicesConfig | None
) -> dict[str, Build]:
    """Device → its build, sealed; all have the same plan id."""
    model, outputs = _model(module.info, emitted), _outputs(module, emitted[0])
    pieces = named_pieces(module.plan) if module.plan and module.plan.stages else {}
    return seal_builds({
        item.part.device: Build(
            plan_id="",
            device=item.part.device,
            target=item.part.target,
            model=model,
            inputs=tuple(_port(value) for value in module.graph.inputs if not value.is_step),
            outputs=outputs,
            dims=largest_dims(module.info),
            values=_values(module, item.part),
            submodules=_submodules(pieces, item.artifact),
            engine=item.artifact.engine,
            memory=_memory(module, item, devices),
            overlap=_overlap(module.plan, item.part.device),
            limits=devices.devices[item.part.device].limits if devices else None,
            survives=tuple(loss.device for loss in losses_of(module.plan) if loss.stages),
            toolkit=item.artifact.toolkit,
            files=item.files,
            digest="",
        )
        for item in emitted
    })  # fmt: skip


def _submodules(pieces: Mapping[str, Piece], artifact: Artifact) -> tuple[Submodule, ...]:
    """The pieces of one device, each with the sub-modules of the plan that it covers."""
    covered = {name: piece.submodules for name, piece in pieces.items()}
    return tuple(replace(item, covers=covered.get(piece_name(item.name))) for item in artifact.submodules)


def describe_placement(
    module: Module, parts: Sequence[Part], devices: DevicesConfig | None, plan_id: str
) -> Placement:
    """The placement of the plan, or where there is none, of the parts as they are."""
    programs = {part.device: part.programs for part in parts if any(part.programs.values())}
    return _placement(
        plan_id,
        programs,
        {phase: _stages(module, parts, phase) for phase in parts[0].programs},
        _addresses(parts, devices),
        placement_figures(module.plan.predicted if module.plan else None, _prompt(module.info)),
        _mirrors(module.plan) if module.plan else {},
    )


def _mirrors(plan: PlanFile) -> dict[str, str]:
    """Piece → the device that keeps a copy of its rows."""
    holder = {j: mirror.holder for mirror in mirrors_of(plan) for j in mirror.submodules}
    found = {}
    for name, piece in (named_pieces(plan) if holder else {}).items():
        holders = {holder[j] for j in piece.indices if j in holder}
        if len(holders) == 1:
            found[name] = holders.pop()
    return found


def describe_contingencies(
    module: Module, parts: Sequence[Part], devices: DevicesConfig | None, plan_id: str
) -> dict[str, Placement]:
    """Lost device → the placement of those that are left."""
    found = {}
    for loss in losses_of(module.plan):
        if loss.stages:
            without = {
                part.device: part.without[loss.device] for part in parts if loss.device in part.without
            }
            stages = _stages_after(loss, parts[0].programs)
            found[loss.device] = _placement(
                plan_id,
                {device: without[device] for device in devices_in(stages)},
                stages,
                _addresses(parts, devices),
                placement_figures(loss.predicted, _prompt(module.info)),
            )
    return found


def _placement(
    plan_id: str,
    programs: Mapping[str, Mapping[str, Program]],
    stages: Mapping[str, Stages],
    addresses: Mapping[str, str | None],
    predicted: Mapping[str, float],
    mirrors: Mapping[str, str] = {},
) -> Placement:
    """`programs`: device → phase → program, in the order of the ring."""
    ring = tuple(programs)
    return seal_placement(Placement(
        placement_id="",
        plan_id=plan_id,
        source=ring[0],
        ring=ring,
        stages=stages,
        programs={phase: {name: print_program(programs[name][phase]) for name in ring} for phase in stages},
        addresses=addresses,
        predicted=predicted,
        mirrors=mirrors,
    ))  # fmt: skip


def _addresses(parts: Sequence[Part], devices: DevicesConfig | None) -> dict[str, str | None]:
    """Device → its address, of all devices of the build, idle ones too."""
    return {part.device: devices.devices[part.device].address if devices else None for part in parts}


def _stages(module: Module, parts: Sequence[Part], phase: str) -> Stages:
    """Without a plan every graph counts as one sub-module."""
    shared = module.plan.answer.phases if module.plan else {}
    if shared:
        return _plain(shared[phase])
    planned = module.plan.stages if module.plan else ()
    return planned or stages_of([part.device for part in parts for _ in part.graphs])


def _stages_after(loss: Loss, phases: Iterable[str]) -> dict[str, Stages]:
    """Phase → the stages of those that are left."""
    if loss.phases:
        return {phase: _plain(stages) for phase, stages in loss.phases.items()}
    return dict.fromkeys(phases, loss.stages or ())


def _plain(stages: SharedStages) -> Stages:
    """The stages as a placement has them."""
    return tuple(Stage(stage.submodules, stage.devices, stage.share) for stage in stages)


def _model(info: ModelInfo, parts: Sequence[EmittedPart]) -> Model:
    return Model(
        name=info.name,
        task=info.task,
        dtype=BY_SHORT[info.dtype].long,
        max_sequence=info.max_sequence,
        max_batch=info.max_batch,
        max_requests=info.max_requests,
        vocab_size=info.vocab_size,
        eos_token_ids=info.eos_token_ids,
        pad_token_id=info.pad_token_id,
        bos_token_id=info.bos_token_id,
        labels=info.labels,
        start_tokens=info.start_tokens,
        placeholder_token=info.placeholder_token,
        placeholders=info.placeholders,
        picture_size=info.picture_size,
        uniform_positions=info.uniform_positions,
        prompt_chunk=_prompt_chunk(parts, info),
        prompt_steps=_prompt_steps(parts, info),
        prefix_reuse=_prefix_reuse(parts),
        drafts=_may_guess(parts, info),
        step_requests=_step_requests(parts, info),
        step_tokens=_step_tokens(parts, info),
    )


def _outputs(module: Module, source: EmittedPart) -> tuple[Port, ...]:
    names = (name for step in _steps(source.part) if isinstance(step, Emit) for name in step.values)
    found = {name: _type_of(name, module, source.part.graphs) for name in names}
    return tuple(Port(name, tensor.dtype, tensor.shape) for name, tensor in found.items())


def _port(value: Value) -> Port:
    tensor = tensor_type(value)
    return Port(value.name, tensor.dtype, tensor.shape)


def _values(module: Module, part: Part) -> dict[str, TensorType]:
    given = {value.name for value in module.graph.inputs}
    known = [(*step.reads, *step.writes) for step in _steps(part)]
    known += [tuple(value.name for value in (*graph.inputs, *graph.outputs)) for graph in part.graphs]
    names = dict.fromkeys(name for some in known for name in some)
    shared = _types_in_programs(module) if module.plan and module.plan.answer.phases else {}
    return {
        name: shared.get(name) or _type_of(name, module, part.graphs) for name in names if name not in given
    }


def _types_in_programs(module: Module) -> dict[str, TensorType]:
    """The types of all values of graphs, and of programs, where devices share stages."""
    parts = module.parts or ()
    graphs = [graph for part in parts for graph in part.graphs]
    calls = {
        graph.name: Run(graph.name, *(tuple(v.name for v in some) for some in (graph.inputs, graph.outputs)))
        for graph in graphs
    }
    named = {value.name: value for graph in graphs for value in (*graph.inputs, *graph.outputs)}
    known = {name: tensor_type(value) for name, value in named.items()}
    return program_types((step for part in parts for step in _steps(part)), calls, known)


def _steps(part: Part) -> list[Instruction]:
    """The instructions of all placements and phases, prefill first."""
    return [
        step
        for programs in (part.programs, *part.without.values())
        for phase in sorted(programs, reverse=True)
        for step in programs[phase]
    ]


def _keeps(parts: Sequence[EmittedPart]) -> bool:
    """Whether the first step of a request makes what later ones read."""
    return any(kept_by(program) for item in parts for program in item.part.programs.values())


def _prefix_reuse(parts: Sequence[EmittedPart]) -> bool:
    """Whether the rows of an earlier prompt can be gone on from; not without states."""
    if _keeps(parts):
        return False
    states = [item for item in parts if any(graph.states() for graph in item.part.graphs)]
    return _can_be_taken_back(states) and all(
        item.artifact.engine.chunked_prefill is not None for item in states
    )


def _can_be_taken_back(parts: Sequence[EmittedPart]) -> bool:
    """Whether a request can be taken back to any of its tokens."""
    modules = [module for item in parts for module in item.artifact.submodules]
    return has_rows_alone(state.kind for module in modules for state in module.states)


def _may_guess(parts: Sequence[EmittedPart], info: ModelInfo) -> bool:
    """Whether steps may take guessed tokens."""
    return info.drafts and _can_be_taken_back(parts)


def _step_requests(parts: Sequence[EmittedPart], info: ModelInfo) -> int:
    """The most requests of a shared step; 1 where every device would compute them one after the other."""
    if not info.has_states or info.uniform_positions or _keeps(parts):
        return 1
    together = [_most_sequences(item, info) for item in parts if item.artifact.engine.kind == "plan"]
    return min(info.max_requests, *together) if together else 1


def _step_tokens(parts: Sequence[EmittedPart], info: ModelInfo) -> tuple[tuple[int, int], ...]:
    """The numbers of tokens of a step that all devices with code for several have, each with its cost."""
    if not _may_guess(parts, info) or _keeps(parts):
        return ()
    together = [item.artifact.token_costs for item in parts if item.artifact.token_costs]
    sizes = [tokens for tokens in _common_sizes(together) if 1 < tokens <= MOST_STEP_TOKENS]
    # A step of one token is computed by the smallest code.
    return tuple(
        [
            (tokens, round(1000 * max(costs[tokens] / min(costs.values()) for costs in together)))
            for tokens in sizes
        ]
    )


def _most_sequences(item: EmittedPart, info: ModelInfo) -> int:
    """The most requests of one token each that all sub-modules of a device have code for; more rows are guesses'."""
    library = item.artifact.engine.library
    functions = library.functions.values() if library else ()
    entries = ([many for many, rows in each.entries if rows == 1] for each in functions)
    of_one = ([many for many in each if many <= info.max_requests] for each in entries)
    return min((max(sequences, default=1) for sequences in of_one), default=1)


def _prompt_chunk(parts: Sequence[EmittedPart], info: ModelInfo) -> int | None:
    """Tokens of a step at most; None where prompts go in one step, or in steps of the sizes that there are."""
    size = PROMPT_CHUNK if len(parts) > 1 else parts[0].artifact.prompt_chunk_alone
    fits = size is not None and info.max_sequence > size
    return size if fits and _takes_parts(parts) else None


def _takes_parts(parts: Sequence[EmittedPart]) -> bool:
    """Whether a step of a prompt may go on behind another; not where the first keeps what it makes of a source.

    An engine that says nothing of it can do no part of a prompt behind another; all others can for one sequence.
    """
    states = [item for item in parts if any(graph.states() for graph in item.part.graphs)]
    can = all(item.artifact.engine.chunked_prefill is not None for item in states)
    return bool(states) and can and not _keeps(parts)


def _prompt_steps(parts: Sequence[EmittedPart], info: ModelInfo) -> tuple[tuple[int, int], ...]:
    """The sizes of step that all devices with code for certain sizes have, each with its cost; none where none has.

    Those that several smaller ones replace are left out.
    """
    sized = [item.artifact.step_costs for item in parts if item.artifact.step_costs]
    if not sized or not _takes_parts(parts):
        return ()
    most = _prompt_chunk(parts, info) or info.max_sequence
    common = [rows for rows in _common_sizes(sized) if rows <= most]
    return useful([(rows, round(1000 * max(costs[rows] for costs in sized))) for rows in common])


def _common_sizes(costs: Sequence[Mapping[int, float]]) -> list[int]:
    """The numbers of rows that all devices with code for certain numbers have, smallest first."""
    return sorted(set[int].intersection(*map(set, costs))) if costs else []


def tensor_type(value: Value) -> TensorType:
    """Element type and shape of a value."""
    if value.dtype is None or value.shape is None:
        raise InternalError(
            f"%{value.name} goes from device to device but has no size", hint="run infer-sizes first"
        )
    return TensorType(BY_SHORT[value.dtype].long, value.shape)


def state_spec(state: State, output: str, layout: Layout = "plain") -> StateSpec:
    """A state of a sub-module, bound to the input of its own name and to `output`."""
    tensor = tensor_type(state)
    return StateSpec(state.name, state.name, output, tensor.dtype, tensor.shape, state.kind, layout)


def _type_of(name: str, module: Module, graphs: Sequence[Graph]) -> TensorType:
    # The whole graph counts where it has the name: what a target makes inside one graph may be called as a value
    # between others is.
    known = {value.name: value for owner in (*graphs, module.graph) for value in owner.values()}
    if name in known:
        return tensor_type(known[name])
    # What no graph has is the token: sampled from the logits, here or on the device that sends it.
    return TensorType("int64", ("batch",))


def largest_dims(info: ModelInfo) -> dict[str, int]:
    """The largest value of every symbol in shapes of a model's values."""
    own = {} if info.task == "graph" else {"batch": info.max_batch, "sequence": info.max_sequence}
    return {**own, **info.dims}


def _prompt(info: ModelInfo) -> float | None:
    """Tokens of the prefill that is planned."""
    return float(info.prompt) if info.has_states else None


def _memory(module: Module, item: EmittedPart, devices: DevicesConfig | None) -> Memory:
    part, exact = item.part, item.artifact.peak_bytes
    return Memory(
        budget_bytes=devices.usable_memory(part.device) if devices else None,
        weights_bytes=weights_bytes(part.running, item.target.stored_bytes),
        state_bytes=state_bytes(part.running, module.info),
        peak_bytes=_peak_bytes(module, part.device) if exact is None else exact,
        mirror_bytes=sum(int(m.memory_bytes) for m in mirrors_of(module.plan) if m.holder == part.device),
    )


def weights_bytes(graphs: Sequence[Graph], stored_bytes: Callable[[Weight], int]) -> int:
    """Bytes of the weights of one device as its target stores them; what is stored once counts once."""
    unique = {
        (stored(weight.source), weight.dtype): weight
        for graph in graphs
        for weight in graph.weights()
        if weight.source is not None
    }
    return sum(map(stored_bytes, unique.values()))


def state_bytes(graphs: Sequence[Graph], info: ModelInfo) -> int:
    """Bytes of the states of one device: each request in flight has its own."""
    sizes = largest_dims(info)
    states = (state for graph in graphs for state in graph.states())
    each = (element_count(s.shape or (), sizes) * BY_SHORT[s.dtype or "f32"].bytes for s in states)
    return sum(each) * info.max_requests


def _overlap(plan: PlanFile | None, device: str) -> Overlap | None:
    """The part of the plan's overlap that concerns this device; None where none was planned."""
    if plan is None or plan.overlap is None or device not in plan.overlap.devices:
        return None
    own, shared = plan.overlap.devices[device], plan.overlap.shared
    return Overlap(
        movable=tuple(own.movable),
        unmovable=tuple(own.unmovable),
        shared=tuple(
            Shared(copy.submodule, tuple(copy.devices)) for copy in shared if device in copy.devices
        ),
    )


def _peak_bytes(module: Module, device: str) -> int | None:
    """Largest peak of activations of the device's sub-modules in any phase; None: not measured."""
    stages = module.plan.stages if module.plan else ()
    if not module.profile or not stages or stages[-1].last + 1 != len(module.profile):
        return None
    own = [module.profile[j] for stage in stages if device in stage.devices for j in stage.indices]
    peaks = [cost.peak_bytes for item in own for cost in item.phases.values()]
    return max(peaks, default=0) if all(math.isfinite(peak) for peak in peaks) else None
