"""The role of one device: its build and the placement of the whole ring, seen together.

`load_role` reads and checks both files; `partc.format.files.verify_files` then holds the folder against the build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec

from partc.errors import BundleError
from partc.format.build import Build, EngineSpec, FileEntry, Model, Submodule, TensorType, load_build
from partc.format.names import BUILD_FILE, PLACEMENT_FILE, device_folders
from partc.format.placement import Placement, load_placement
from partc.format.program import CHUNK, REPLAY, Emit, Instruction, Program, Run, Sample, kept_by, tokenless
from partc.format.program_rules import Call, Types, device_problems
from partc.format.reading import RECOMPILE
from partc.format.state_kinds import is_any_rewritten
from partc.format.tasks import INPUT_IDS, SOURCE_IDS, generates

STEP_INPUTS = {"position": ("batch",), "length": ("batch",), "index": ("sequence",)}
"""Values that every device has without a message, and their shapes; all are int64."""
_TOKEN = TensorType("int64", ("batch",))


@dataclass(frozen=True)
class Role:
    """One device's view of a build and a placement."""

    build: Build
    placement: Placement

    def changed(self, **fields: Any) -> Self:
        """The same with other fields of the build."""
        return type(self)(msgspec.structs.replace(self.build, **fields), self.placement)

    @property
    def plan_id(self) -> str:
        """Equal on all devices of a build."""
        return self.build.plan_id

    @property
    def placement_id(self) -> str:
        """Equal on all devices of a ring."""
        return self.placement.placement_id

    @property
    def plan_digest(self) -> bytes:
        """`plan_id` as it travels."""
        return bytes.fromhex(self.plan_id)

    @property
    def placement_digest(self) -> bytes:
        """`placement_id` as it travels."""
        return bytes.fromhex(self.placement_id)

    @property
    def epoch(self) -> int:
        """0 as compiled; higher after a re-plan."""
        return self.placement.epoch

    @property
    def device(self) -> str:
        """The device whose role it is."""
        return self.build.device

    @property
    def target(self) -> str:
        """The back end that made the files."""
        return self.build.target

    @property
    def source(self) -> str:
        """The device where requests enter."""
        return self.placement.source

    @property
    def ring(self) -> tuple[str, ...]:
        """The devices in use, in the order in which a step first comes to them."""
        return self.placement.ring

    @property
    def model(self) -> Model:
        """Facts of the whole model."""
        return self.build.model

    @property
    def dims(self) -> Mapping[str, int]:
        """The largest value of every symbol."""
        return self.build.dims

    @property
    def values(self) -> Mapping[str, TensorType]:
        """Type of every value that the build's programs name."""
        return self.build.values

    @property
    def engine(self) -> EngineSpec:
        """The engine that computes the sub-modules."""
        return self.build.engine

    @property
    def addresses(self) -> Mapping[str, str | None]:
        """Device → HOST:PORT, None where it is given at start."""
        return self.placement.addresses

    @property
    def predicted(self) -> Mapping[str, float]:
        """Seconds of one whole step of each phase."""
        return self.placement.predicted

    @property
    def files(self) -> Mapping[str, FileEntry]:
        """Digest and size of every file."""
        return self.build.files

    @property
    def is_source(self) -> bool:
        """Whether requests enter here."""
        return self.device == self.source

    @property
    def has_step_inputs(self) -> bool:
        """Whether there are step inputs (every task but `graph`)."""
        return self.model.task != "graph"

    @property
    def takes_tokens(self) -> bool:
        """Whether a request brings token ids; else a picture, a sound, or what an ONNX graph takes."""
        own = SOURCE_IDS if self.model.start_tokens else INPUT_IDS
        return own in self.inputs and self.has_step_inputs

    @property
    def can_be_served(self) -> bool:
        """Whether `partc serve` answers or embeds texts with this model."""
        return self.takes_tokens and (self.model.generates or self.model.task == "feature-extraction")

    @cached_property
    def inputs(self) -> Mapping[str, TensorType]:
        """Tensors of a request, given on the source."""
        return {port.name: port.type for port in self.build.inputs}

    @cached_property
    def outputs(self) -> Mapping[str, TensorType]:
        """Tensors that a request gets."""
        return {port.name: port.type for port in self.build.outputs}

    @cached_property
    def submodules(self) -> Mapping[str, Submodule]:
        """Name → file that the engine can compute."""
        return {submodule.name: submodule for submodule in self.build.submodules}

    def rewrites(self, submodule: str) -> bool:
        """Whether each step rewrites states of a sub-module as a whole: they are those of its last step alone."""
        return is_any_rewritten(state.kind for state in self.submodules[submodule].states)

    @cached_property
    def rewrites_any(self) -> bool:
        """Whether it does so in a sub-module that the programs run."""
        return any(map(self.rewrites, self.running))

    @property
    def guesses(self) -> bool:
        """Whether steps may take guessed tokens; a device alone has no time to fill, and needs several in one step."""
        return (
            self.model.drafts and self.model.generates and (len(self.ring) > 1 or self.model.most_tokens > 1)
        )

    @cached_property
    def keeps(self) -> bool:
        """Whether a device of the ring keeps values of first steps."""
        parsed = self.placement.parsed.values()
        return any(kept_by(program) for programs in parsed for program in programs.values())

    @cached_property
    def programs(self) -> Mapping[str, Program]:
        """Phase → program of this device; empty ones where it is not in the ring.

        `replay` follows from `decode`, and `chunk`, where prompts go in several steps, from `prefill`.
        """
        own = {phase: programs.get(self.device, ()) for phase, programs in self.placement.parsed.items()}
        if "decode" in own:
            own[REPLAY] = tokenless(own["decode"])
            if self.model.goes_in_parts:
                own[CHUNK] = tokenless(own["prefill"])
        return own

    @cached_property
    def running(self) -> tuple[str, ...]:
        """The sub-modules that the programs run, in the order of a step; the build may hold more."""
        return _once(item.submodule for item in self._instructions() if isinstance(item, Run))

    @cached_property
    def mirrored(self) -> Mapping[str, str]:
        """Sub-module that the programs run → the other device that keeps a copy of its rows.

        Not of those where steps rewrite states: rows would be of no use without these.
        """
        keepers = self.placement.mirrors
        copied = [name for name in self.running if keepers.get(name, self.device) != self.device]
        return {name: keepers[name] for name in copied if not self.rewrites(name)}

    @cached_property
    def receive(self) -> tuple[str, ...]:
        """Devices that it receives from."""
        return _once(message.device for item in self._instructions() for message in item.awaits)

    @cached_property
    def send(self) -> tuple[str, ...]:
        """Devices that it sends to."""
        return _once(message.device for item in self._instructions() for message in item.sends)

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """The type of every value that a program may name."""
        steps = {name: TensorType("int64", shape) for name, shape in STEP_INPUTS.items()}
        tokens = dict.fromkeys(_tokens(self._instructions(), self.model.task), _TOKEN)
        given = steps if self.has_step_inputs else {}
        return {**given, **tokens, **self.inputs, **self.outputs, **self.values}

    def _instructions(self) -> Iterator[Instruction]:
        for program in self.programs.values():
            yield from program


def load_role(folder: Path) -> Role:
    """Read and check the two JSON files of a device's folder, without opening the files that they name.

    Raises:
        BundleError: with the file, the key that is wrong, and the remedy.
    """
    role = Role(load_build(folder), load_placement(folder))
    check_role(role, str(folder))
    return role


def source_role(build_dir: Path) -> Role:
    """The role of the device where requests enter.

    Raises:
        BundleError: `build_dir` is not what `partc compile` writes, or a file in it is damaged.
    """
    folders = device_folders(build_dir)
    if not folders:
        message = f"not a build: there is no devices/NAME/{BUILD_FILE}"
        hint = f"partc compile MODEL --target DEVICES -o {build_dir}"
        raise BundleError(message, where=str(build_dir), hint=hint)
    return load_role(build_dir / "devices" / load_role(folders[0]).source)


def read_roles(build_dir: Path) -> dict[str, Role]:
    """The roles of all devices of a build, by name.

    Raises:
        BundleError: it is no build, or the folder of a device in the ring is missing, or one is damaged or of another
            build.
    """
    source = source_role(build_dir)
    roles = {role.device: role for role in map(load_role, device_folders(build_dir))}
    foreign = [name for name, role in roles.items() if role.plan_id != source.plan_id]
    if missing := [name for name in source.ring if name not in roles]:
        text = f"the folder of {missing[0]} is missing: the devices are not those of one plan"
    elif foreign:
        text = f"the folder of {foreign[0]} is of another build than that of {source.device}"
    else:
        return roles
    hint = "copy the folders of one build to all devices, or compile again"
    raise BundleError(text, where=str(build_dir / "devices" / (missing or foreign)[0]), hint=hint)


def check_role(role: Role, where: str) -> None:
    """The build and the placement belong together, and the device can do what its programs say.

    A device that has an address and is not in the ring is idle: it has no programs.

    Raises:
        BundleError: names the instruction that is wrong.
    """
    if role.build.plan_id != role.placement.plan_id:
        message = f"{BUILD_FILE} and {PLACEMENT_FILE} are of different builds"
        raise BundleError(message, where=where, hint=RECOMPILE)
    if role.device not in role.addresses:
        message = f"device: {role.device!r} is not among the addresses of {PLACEMENT_FILE}"
        raise BundleError(message, where=where, hint=RECOMPILE)
    given = {*(STEP_INPUTS if role.has_step_inputs else ()), *(role.inputs if role.is_source else ())}
    kept = kept_by(role.programs.get("prefill", ()))
    calls = {
        module.name: Call(module.inputs, module.outputs, bool(module.states))
        for module in role.build.submodules
    }
    types = Types(role.types, role.dims)
    for phase, program in role.programs.items():
        later = phase in ("decode", REPLAY)
        for problem in device_problems(program, {*given, *kept} if later else given, calls, types):
            place = f"{where}: {PLACEMENT_FILE}: programs.{phase}.{role.device}"
            raise BundleError(problem, where=place, hint=RECOMPILE)


def _tokens(instructions: Iterator[Instruction], task: str) -> Iterator[str]:
    for instruction in instructions:
        if isinstance(instruction, Sample):
            yield instruction.token
        if isinstance(instruction, Emit) and generates(task):
            yield from instruction.values


def _once(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
