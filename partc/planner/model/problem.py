"""The planning problem: devices, links, sub-modules and what flows between them; its JSON form is of `problem_json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from partc.format.plan import Objective
from partc.planner.model.objectives import by_objective

BlockUnits = Literal["heads", "columns"]
"""The parts of a block that are counted and divided: groups of heads of an attention, columns of an MLP."""


@dataclass(frozen=True)
class Device:
    """A device that may hold intervals of sub-modules."""

    name: str
    memory_bytes: float
    """Usable memory, memory_fraction already applied."""
    overhead_bytes: float = 0
    """Memory of the runtime, needed as soon as the device is used."""
    storage_bytes: float | None = None
    """Bytes of weights that may lie on its disk; None: no limit."""

    @property
    def room_bytes(self) -> float:
        """Memory for sub-modules; below 0 where the runtime alone does not fit."""
        return self.memory_bytes - self.overhead_bytes


@dataclass(frozen=True)
class Shared:
    """Memory that several sub-modules have in common, counted once per device (a tied embedding)."""

    name: str
    bytes: float


@dataclass(frozen=True)
class Block:
    """The part of a sub-module that several devices may share: an attention by heads, or an MLP by columns."""

    share: BlockUnits
    """The units of its shares."""
    units: int
    """Shares are whole numbers of these: groups of heads that have keys of their own, or columns."""
    memory_bytes: float
    """Weights and states that are divided with the units, of `Submodule.memory_bytes`."""
    efficiency: float = 1.0
    """Speed of a part of the block as a fraction of the speed of the whole: smaller products are slower."""


@dataclass(frozen=True)
class Tiling:
    """A block in a step of one phase: what its devices exchange, and which part of its time lies where."""

    rows: int
    """Positions of the step; a tile is some of them."""
    activation_bytes: float
    """The value of all rows that is gathered before the block."""
    enter: float
    """Fraction of the time in the products that the gathered value enters (query, key and value; gate and up)."""
    leave: float
    """Fraction of the time in the product whose results are summed (attention's output; down)."""
    connect: float
    """Fraction of the time in residual sums and normalisations, which are divided by rows."""
    keys_bytes: float = 0
    """Keys and values of all rows, which devices that share by rows alone gather; 0 for an MLP."""
    queries_bytes: float = 0
    """Queries of all rows, where these devices gather them as well and each computes attention for all rows; 0: for its
    own, as the paper has it."""
    sum_bytes: float = 0
    """The sum behind the block, where it is of another type; 0: as many as before the block."""
    by_rows: bool = True
    """Whether its rows have an axis to themselves, so that devices can have tiles of them."""

    @property
    def summed_bytes(self) -> float:
        """Bytes of the sum of all rows."""
        return self.sum_bytes or self.activation_bytes


@dataclass(frozen=True)
class Submodule:
    """The needs of one sub-module."""

    memory_bytes: float
    """Weights and states."""
    time_s: Mapping[str, float]
    """Device name -> seconds; an absent device cannot run it. Empty where there are phases."""
    peak_bytes: float = 0
    """Largest size of its activations at one time."""
    shared: Shared | None = None
    disk_bytes: float = 0
    """Weights as they lie on a disk, without shared ones."""
    block: Block | None = None
    """How devices may share it; None: one device has all of it."""
    tiling: Tiling | None = None
    """Tiling of its block, where there are no phases."""


@dataclass(frozen=True)
class Edge:
    """A value that goes from one sub-module to a later one."""

    sender: int
    receiver: int
    bytes: float
    value: str | None = None
    """Edges with the same sender and value are sent once to each device; None: a value of its own."""


@dataclass(frozen=True)
class Result:
    """A result of a step that a sub-module before the last one makes, and the source is to have."""

    maker: int
    value: str
    """The name under which edges carry it, where later sub-modules read it too."""
    bytes: float


@dataclass(frozen=True)
class Link:
    """One direction between two devices."""

    sender: str
    receiver: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def seconds(self, count: float) -> float:
        """The time that a message of `count` bytes takes."""
        return self.latency_s + count / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Phase:
    """One kind of step (prefill, decode) with its times and traffic."""

    name: str
    weight: float
    """The weight of a step of this phase in the objective."""
    time_s: tuple[Mapping[str, float], ...]
    """Times of every sub-module: device name -> seconds."""
    edges: tuple[Edge, ...]
    return_bytes: float = 0
    """Size of the results of the last sub-module, which go back to the source."""
    tilings: tuple[Tiling | None, ...] = ()
    """Those of the blocks of all sub-modules; empty where there is no block."""
    results: tuple[Result, ...] = ()
    """Results that sub-modules before the last one make."""


@dataclass(frozen=True)
class Drafts:
    """Steps of decode may take guessed tokens."""

    share: float = 0.0
    """Share of the tokens that come true from a guess (g): a latency is to be short for that."""
    step_tokens: tuple[tuple[int, float], ...] = ()
    """Consecutive tokens of a request that a step may take, each with the time of such a step by that of one token."""


@dataclass(frozen=True)
class Problem:
    """Everything that a plan depends on."""

    objective: Objective
    """`latency` (seconds, minimised) or `throughput` (steps per second, maximised)."""
    source: str
    """The device that holds the first sub-module."""
    devices: tuple[Device, ...]
    submodules: tuple[Submodule, ...]
    links: tuple[Link, ...]
    """Each direction on its own; a pair that is not listed cannot exchange."""
    edges: tuple[Edge, ...] = ()
    return_bytes: float = 0
    results: tuple[Result, ...] = ()
    phases: tuple[Phase, ...] = ()
    """Phases replace times, edges, return_bytes and results where they are given."""
    batch: int = 1
    """Sequences in a step: so many tokens a step makes. Times and bytes are those of the whole batch."""
    returns: int | None = None
    """How often a plan may return to a device that it has left; None: any number of times."""
    drafts: Drafts | None = None
    """None: no token is guessed."""
    most_busy_s: float | None = None
    """No device computes longer for a step of decode, and no link sends longer; None: no limit. Searches set it."""

    @cached_property
    def steps(self) -> tuple[Phase, ...]:
        """The phases; a problem without any has one, of weight 1."""
        if self.phases:
            return self.phases
        times = tuple(submodule.time_s for submodule in self.submodules)
        tilings = tuple(submodule.tiling for submodule in self.submodules)
        blocks = tilings if any(tilings) else ()
        return (Phase("step", 1.0, times, self.edges, self.return_bytes, blocks, self.results),)

    @cached_property
    def decode(self) -> int | None:
        """The index in `steps` of the steps that make one token; None where there are none."""
        return next((at for at, phase in enumerate(self.steps) if phase.name in ("decode", "step")), None)

    @property
    def drafted(self) -> float:
        """Share of guessed tokens that values of plans count; a pipeline that is full has no time for guesses."""
        counts = by_objective(self.objective, latency=True, throughput=False)
        return self.drafts.share if self.drafts and counts and self.decode is not None else 0.0

    @cached_property
    def link_of(self) -> dict[tuple[str, str], Link]:
        """(from, to) -> link."""
        return {(link.sender, link.receiver): link for link in self.links}

    @cached_property
    def device_of(self) -> dict[str, Device]:
        """Name -> device, in the order given."""
        return {device.name: device for device in self.devices}

    @cached_property
    def able(self) -> frozenset[str]:
        """The devices that have a time for some sub-module."""
        return frozenset(name for phase in self.steps for times in phase.time_s for name in times)

    def interval_memory(self, first: int, last: int) -> float:
        """Bytes that sub-modules first..last (inclusive) need together, without the device's overhead."""
        return self.memory_of(range(first, last + 1))

    def memory_of(self, indices: Iterable[int]) -> float:
        """Bytes that these sub-modules need on one device, without its overhead; any, but at least one."""
        parts = [self.submodules[j] for j in indices]
        shared = {part.shared.name: part.shared.bytes for part in parts if part.shared}
        return (
            sum(part.memory_bytes for part in parts)
            + max(part.peak_bytes for part in parts)
            + sum(shared.values())
        )

    def disk_of(self, indices: Iterable[int]) -> float:
        """Bytes of the weights of these sub-modules on one disk."""
        parts = [self.submodules[j] for j in indices]
        shared = {part.shared.name: part.shared.bytes for part in parts if part.shared}
        return sum(part.disk_bytes for part in parts) + sum(shared.values())
