"""The plan of a module: plan.json, `{format, problem, answer, predicted, overlap, survival, layers, fleet}`.

The planner makes it (`partc.planner`); the IR carries it from `partition-graph` to the passes that apply it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, convert, field, structs, to_builtins

from partc.format.fleet import Fleet
from partc.format.placement import Stage, Stages, assignment_of, stages_of

FORMAT = "partc-plan/1"
Objective = Literal["latency", "throughput"]
"""The time of a token is to be short, or the number of steps in a second large: see
`partc.planner.model.objectives`."""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
Json = dict[str, Any]
Number = int | float
"""Numbers are printed as they came: 50 bytes stay 50, not 50.0."""


def plain(record: object) -> Any:
    """A record of this module as JSON data: mappings, lists, numbers and texts."""
    return json.loads(json.dumps(to_builtins(record)))


Exchange = Literal["none", "tiles", "ring", "star"]
"""How the devices of a stage exchange a value: tile by tile along a ring while they compute, in a ring or through the
first of them when they have computed; not at all where there is one."""
TILES = "tiles"
"""Stands for the values of messages among the devices of a stage."""


class SharedStage(Stage, frozen=True):
    """A stage of a plan in which stages may have several devices."""

    shares: tuple[int, ...] = ()
    """Units (heads, columns or rows) of each device; empty where there is one."""
    exchange: Exchange = "none"


SharedStages = tuple[SharedStage, ...]
"""Stages in the order of a step, as `Stages` are."""


class Plan(Struct, frozen=True, kw_only=True):
    """The answer to a planning problem: who computes what, its value, and how much better any plan could be."""

    stages: Stages | None = None
    """None where no plan is feasible."""
    phases: dict[str, SharedStages] = field(default_factory=dict)
    """Phase → its stages, where some have several devices; `stages` are then those of the first phase."""
    value: Number | None = None
    """Seconds (latency) or steps per second (throughput)."""
    bound: Number | None = None
    """No plan can be better than this: below a latency, above a throughput. None: not known."""
    gap: Number | None = None
    """|value - bound| / value; 0 is proven optimal."""
    method: str = ""
    """The method that found it."""
    constraint: str | None = None
    """The constraint that cannot be met, in words and numbers; None where the plan is feasible."""
    explain: Json = field(default_factory=dict)
    """Plain JSON: the devices in use, why each other one is not, what binds."""

    @property
    def feasible(self) -> bool:
        """Whether there is a plan."""
        return self.stages is not None

    @property
    def assignment(self) -> tuple[str, ...] | None:
        """The device of every sub-module; None without a plan, and where a stage has several devices."""
        return assignment_of(self.stages) if self.stages else None

    def to_json(self) -> Json:
        """`answer` of plan.json; `from_json` gives back an equal plan."""
        fields = plain(self)
        phases = fields.pop("phases")
        fields["stages"] = phases
        if not phases:
            del fields["stages"]
        names = None if self.assignment is None else list(self.assignment)
        return {"feasible": self.feasible, "assignment": names, **fields}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` wrote.

        Raises:
            msgspec.ValidationError: a value is of the wrong kind.
        """
        names = convert(data.get("assignment"), list[str] | None)
        phases = convert(data.get("stages", {}), dict[str, SharedStages])
        others = {key: data[key] for key in data if key not in ("feasible", "assignment", "stages")}
        # A step begins with the prompt, whatever the order of the keys; a later phase may have one device a stage.
        first = phases.get("prefill", next(iter(phases.values()), None))
        stages = first or (stages_of(names) if names else None)
        return structs.replace(convert(others, cls), stages=stages, phases=phases)


def feasible_plan(
    stages: Stages, value: float, bound: float | None, method: str, explain: Mapping[str, Any] | None = None
) -> Plan:
    """A feasible plan; the gap follows from value and bound."""
    gap = None if bound is None else abs(value - bound) / value if value else 0.0
    return Plan(stages=stages, value=value, bound=bound, gap=gap, method=method, explain=dict(explain or {}))


def infeasible_plan(constraint: str, method: str) -> Plan:
    """The statement that nothing meets the constraints."""
    return Plan(method=method, constraint=constraint)


class StageRun(Struct, frozen=True):
    """One stage in one step."""

    device: str
    first: int
    last: int
    """Inclusive."""
    start_s: Number
    finish_s: Number

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.finish_s - self.start_s


class Message(Struct, frozen=True, omit_defaults=True, rename={"sender": "from", "receiver": "to"}):
    """Everything that one stage sends to another in one step."""

    sender: str
    receiver: str
    bytes: Number
    start_s: Number
    arrive_s: Number
    values: tuple[str, ...]
    """Names of the values; `2->5` for an edge without a name, `return` for the message back to the source."""
    from_stage: int
    """Index of the sending stage in the timeline."""
    to_stage: int
    """Index of the receiving stage; 0 for the message back to the source."""
    relation: Literal["sequential", "residual", "return", "tiles"] | None = None
    """Relation of the sending stage to the receiving one, where stages may have several devices, each of them an entry
    of the timeline; `tiles`: among the devices of one. None: it follows from the indices."""

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.arrive_s - self.start_s

    @property
    def is_return(self) -> bool:
        """Whether it is the result on its way back to the source: nothing else is sent to the first stage."""
        return self.kind == "return"

    @property
    def kind(self) -> str:
        """`sequential` (to the next stage), `residual` (past it) or `return` (the result, back to the source)."""
        if self.relation:
            return self.relation
        if self.to_stage == 0:
            return "return"
        return "sequential" if self.to_stage == self.from_stage + 1 else "residual"


class Timeline(Struct, frozen=True):
    """One step of a phase, from the first start to the end."""

    phase: str
    weight: Number
    latency_s: Number
    stages: tuple[StageRun, ...]
    messages: tuple[Message, ...]


class MemoryUse(Struct, frozen=True):
    """Memory of a device in use."""

    device: str
    needed_bytes: Number
    """Overhead included."""
    available_bytes: Number


class DraftedToken(Struct, frozen=True):
    """The time of a decoded token of one request that has the ring for itself, where some tokens are guessed."""

    share: Number
    """Share of the tokens that come true from a guess."""
    token_s: Number


class Predicted(Struct, frozen=True, omit_defaults=True):
    """The step of every phase, the memory of every device in use, and how long each device and link is busy."""

    phases: tuple[Timeline, ...]
    memory: tuple[MemoryUse, ...]
    busy_s: dict[str, Number]
    """Weighted busy time per step of each device (`A`) and link (`A->B`) in use."""
    drafts: tuple[DraftedToken, ...] = ()
    """Shares of guessed tokens, ascending; empty where none are guessed."""


class Holding(Struct, frozen=True):
    """The sub-modules that one device has memory for, its own and those of neighbours."""

    movable: tuple[int, ...]
    """Those that a neighbour has memory for, too."""
    unmovable: tuple[int, ...]
    needed_bytes: Number
    """Memory that the device needs for all of them."""
    available_bytes: Number


class Copy(Struct, frozen=True):
    """A sub-module that two devices have memory for."""

    submodule: int
    devices: tuple[str, str]
    """The device that computes it, and the neighbour that could."""


class Overlap(Struct, frozen=True, omit_defaults=True):
    """The copies of sub-modules beside the borders of the plan."""

    bytes: Number
    """Weights and states of all copies."""
    bound_bytes: Number
    """No choice of copies has more."""
    devices: dict[str, Holding]
    shared: tuple[Copy, ...]
    """The copies that there is room for in memory."""
    borders: tuple[int, ...] = ()
    """Sub-modules before which the graph is cut besides, so that work can be moved there."""
    copies: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Device → sub-modules of its neighbours that lie on its disk for that."""
    texts: tuple[str, ...] = ()
    """Moves that these make possible, in words; empty where devices.yaml has no `overlap`."""


class Loss(Struct, frozen=True, kw_only=True):
    """The loss of one device: the plan of those that are left, or why there is none."""

    device: str
    assignment: tuple[str, ...] | None = None
    """The device of every sub-module after the loss; None: no device can take its part, or `phases` say it."""
    phases: dict[str, SharedStages] = field(default_factory=dict)
    """Phase → the stages after the loss, where stages may have several devices; not written where it is empty."""
    value: Number | None = None
    """Seconds (latency) or steps per second (throughput) after the loss."""
    bytes: dict[str, Number] = field(default_factory=dict)
    """Device → weights of others that lie on its disk for this loss."""
    load_s: Number | None = None
    """Seconds until the last survivor has read what it takes over from its disk; None: not known."""
    same_tokens: bool = False
    """Whether the tokens stay the same: each new owner computes as the old one. Else a request goes on with what it
    has, and what follows may differ."""
    constraint: str | None = None
    """The constraint that cannot be met, in words and numbers."""
    text: str = ""
    """All of it in words."""
    predicted: Predicted | None = None

    @property
    def stages(self) -> Stages | None:
        """The stages after the loss, of the first phase where phases differ; None without a plan."""
        first = next(iter(self.phases.values()), None)
        return first or (stages_of(self.assignment) if self.assignment else None)


class Mirror(Struct, frozen=True, kw_only=True):
    """The rows of one device's caches that another one keeps, too."""

    device: str
    holder: str
    submodules: tuple[int, ...]
    token_bytes: Number
    """Bytes that a token adds and the device sends, for all sequences of a step."""
    seconds: Number | None
    """The time on the link for a token; None: there is no link."""
    memory_bytes: Number
    """Memory that the rows take on the holder, for all requests in flight."""
    text: str = ""
    """All of it in words."""


class Survival(Struct, frozen=True, kw_only=True):
    """The losses that a build survives, and the copies that they take."""

    losses: tuple[Loss, ...]
    """One for each device in use but the source: without any other nothing changes."""
    copies: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Device → the sub-modules of others that lie on its disk."""
    bytes: Number = 0
    """Weights of all copies."""
    bound_bytes: Number = 0
    """No choice of copies by which the same losses are survived has fewer."""
    mirrors: tuple[Mirror, ...] = ()
    text: str = ""
    """The reason why there is no loss to survive; empty where there is one."""


class PlanFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """plan.json; IR text written by hand may have the answer's assignment alone."""

    problem: Json | None = None
    """The planning problem as JSON (`partc.planner.model.problem_json`)."""
    answer: Plan = Plan()
    """Empty where nobody planned."""
    predicted: Predicted | None = None
    overlap: Overlap | None = None
    survival: Survival | None = None
    layers: tuple[tuple[int, int], ...] | None = None
    """First and last layer of the model in every sub-module; None where they cannot be told."""
    fleet: Fleet | None = None
    """Rings for a demand, instead of a problem with one answer."""

    @property
    def stages(self) -> Stages:
        """The stages of the answer; none without a plan."""
        return self.answer.stages or ()

    def to_json(self) -> Json:
        """plan.json as data; `from_json` gives back an equal plan."""
        fields = {
            "format": FORMAT,
            "problem": self.problem,
            "answer": None if self.answer == Plan() else self.answer.to_json(),
            "predicted": plain(self.predicted),
        }
        found = {
            "overlap": self.overlap, "survival": self.survival, "layers": self.layers, "fleet": self.fleet
        }  # fmt: skip
        made = {**fields, **{key: plain(value) for key, value in found.items() if value is not None}}
        for loss in made["survival"]["losses"] if self.survival else ():
            if not loss["phases"]:
                del loss["phases"]
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanFile:
        """The plan of such data; every key may be missing.

        Raises:
            msgspec.ValidationError: a key is unknown, or a value of the wrong kind.
        """
        answer = convert(data.get("answer"), Json | None)
        plan = convert({key: data[key] for key in data if key not in ("format", "answer")}, cls)
        return structs.replace(plan, answer=Plan.from_json(answer or {}))


def losses_of(plan: PlanFile | None) -> tuple[Loss, ...]:
    """The losses that a plan knows of."""
    return plan.survival.losses if plan and plan.survival else ()


def mirrors_of(plan: PlanFile | None) -> tuple[Mirror, ...]:
    """The rows that are kept twice."""
    return plan.survival.mirrors if plan and plan.survival else ()
