"""placement.json: the whole ring, which a re-plan changes; the file is the same on all devices.

docs/bundle.md describes it; its tables and the JSON schema are made from these structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from partc.errors import BundleError
from partc.format.build import Count, Data, DeviceName, Sha256
from partc.format.digests import canonical_json, data_digest
from partc.format.frames import split_frames
from partc.format.json_text import parse_json
from partc.format.names import PLACEMENT_FILE
from partc.format.program import Program, Run, parse_program
from partc.format.program_rules import ring_problems
from partc.format.reading import RECOMPILE, check_format, convert, read_object

PLACEMENT_FORMAT: Final = "partc-placement/2"
_FIGURES = frozenset({"prefill_s", "decode_s", "prefill_tokens"})

Phase = Annotated[str, Meta(pattern="^(prefill|decode)$")]
Share = Literal["one", "heads", "columns", "sequence"]
"""Ways of sharing a stage: one device has all of it; attention by heads; products by columns; positions by ranges."""
MOST_FIGURE = 1e6
"""Seconds of a step, or tokens; a runner that had to wait longer would never give up."""
Figure = Annotated[float, Meta(ge=0, le=MOST_FIGURE)]


class Stage(Data, frozen=True):
    """Consecutive sub-modules, and the devices that compute them."""

    submodules: tuple[Count, Count]
    """First and last, inclusive."""
    devices: Annotated[tuple[DeviceName, ...], Meta(min_length=1)]
    """In the order of their shares."""
    share: Share = "one"
    """One device has all of it; attention by heads; products by columns; positions by ranges."""

    @property
    def first(self) -> int:
        """The first sub-module."""
        return self.submodules[0]

    @property
    def last(self) -> int:
        """The last sub-module."""
        return self.submodules[1]

    @property
    def indices(self) -> range:
        """All sub-modules."""
        return range(self.first, self.last + 1)

    @property
    def device(self) -> str:
        """The only device; raises ValueError where there are several."""
        (device,) = self.devices
        return device


Stages = tuple[Stage, ...]
"""In the order of a step; together they hold every sub-module once. A device may have several."""


def stages_of(assignment: Sequence[str]) -> Stages:
    """The stages of a list that names the device of every sub-module: its runs of equal names."""
    runs = (list(run) for _, run in groupby(enumerate(assignment), key=lambda item: item[1]))
    return tuple(Stage((run[0][0], run[-1][0]), (run[0][1],)) for run in runs)


def assignment_of(stages: Sequence[Stage]) -> tuple[str, ...] | None:
    """The device of every sub-module; None where a stage has several devices."""
    if any(stage.share != "one" for stage in stages):
        return None
    return tuple(stage.device for stage in stages for _ in stage.indices)


class Placement(Data, frozen=True, kw_only=True, dict=True):
    """placement.json."""

    format: Literal["partc-placement/2"] = PLACEMENT_FORMAT
    """Name and version of the format."""
    placement_id: Sha256
    """SHA-256 of the file's text without this key and `addresses`."""
    plan_id: Sha256
    """The build that it is for."""
    epoch: Count = 0
    """0 as compiled; higher after a re-plan."""
    source: DeviceName
    """The device where requests enter."""
    ring: Annotated[tuple[DeviceName, ...], Meta(min_length=1)]
    """The devices in use, in the order in which a step first comes to them."""
    stages: Mapping[Phase, tuple[Stage, ...]]
    """By phase, in the order of a step."""
    programs: Mapping[Phase, Mapping[DeviceName, str]]
    """By phase and device: the text of its program."""
    addresses: Mapping[DeviceName, str | None]
    """HOST:PORT of every device of the ring, and of others that may join it; null where it is given at start."""
    predicted: Mapping[str, Figure]
    """Seconds of one whole step of each phase round the ring, and the tokens of that prefill; empty without a plan."""
    mirrors: Mapping[str, DeviceName] = {}
    """Sub-module of the build → the device that keeps a copy of its rows, beside the one that runs it."""

    @cached_property
    def parsed(self) -> Mapping[str, Mapping[str, Program]]:
        """The programs by phase and device.

        Raises:
            BundleError: a line is no instruction.
        """
        return {
            phase: {
                device: parse_program(text, f"programs.{phase}.{device}") for device, text in programs.items()
            }
            for phase, programs in self.programs.items()
        }

    @cached_property
    def running(self) -> Mapping[str, frozenset[str]]:
        """Device of the ring → the sub-modules that it runs."""
        found: dict[str, set[str]] = {device: set() for device in self.ring}
        for programs in self.parsed.values():
            for device, program in programs.items():
                found[device].update(item.submodule for item in program if isinstance(item, Run))
        return {device: frozenset(names) for device, names in found.items()}


def seal_placement(placement: Placement) -> Placement:
    """The same with the placement id that belongs to its content."""
    return replace(placement, placement_id=_identity(placement_json(placement)))


def placement_json(placement: Placement) -> dict[str, Any]:
    """A placement as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(placement)
    return data


def _identity(raw: Mapping[str, Any]) -> str:
    """The placement id: addresses do not count, since a device that moves computes the same."""
    return data_digest({key: value for key, value in raw.items() if key not in ("placement_id", "addresses")})


def load_placement(folder: Path) -> Placement:
    """Read and check `folder`/placement.json.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    path = folder / PLACEMENT_FILE
    return parse_placement(read_object(path), str(path))


def placement_frames(placement: Placement) -> list[memoryview]:
    """The text of a placement in the frames of a message; `read_placement` is the inverse."""
    return split_frames(memoryview(canonical_json(placement_json(placement)).encode()))


def read_placement(text: bytes, where: str) -> Placement:
    """Check a placement that came as text.

    Raises:
        BundleError: it is no JSON object, or a key is wrong.
    """
    raw = parse_json(text, where, BundleError, RECOMPILE)
    if not isinstance(raw, dict):
        raise BundleError("not a JSON object", where=where, hint=RECOMPILE)
    return parse_placement(raw, where)


def parse_placement(raw: Mapping[str, Any], where: str = PLACEMENT_FILE) -> Placement:
    """Check the content of a placement.json.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    check_format(raw, PLACEMENT_FORMAT, where)
    if "placement_id" in raw and raw["placement_id"] != _identity(raw):
        raise BundleError("the file is damaged: its placement_id does not fit", where=where, hint=RECOMPILE)
    placement = convert(raw, Placement, where)
    for problem in _problems(placement):
        raise BundleError(problem, where=where, hint=RECOMPILE)
    _check_programs(placement, where)
    # Another writer may leave out what ours spells out; what is sent on is our text, and its id has to fit.
    return seal_placement(placement)


def _check_programs(placement: Placement, where: str) -> None:
    try:
        parsed = placement.parsed
    except BundleError as error:
        raise BundleError(
            error.message, where=f"{where}: {error.where}", hint=error.hint or RECOMPILE
        ) from None
    for phase, programs in parsed.items():
        for problem in ring_problems(programs, placement.source):
            place = f"{where}: programs.{phase}.{problem.device}"
            raise BundleError(f"{problem.device} {problem.message}", where=place, hint=RECOMPILE)


def _problems(placement: Placement) -> Iterator[str]:
    """Every device that is named is in the ring, and every one of the ring has a program."""
    ring = set(placement.ring)
    if len(ring) != len(placement.ring):
        yield "ring: a device stands twice"
    if placement.source not in ring:
        yield f"source: {placement.source!r} is not in the ring"
    if unknown := sorted(set(placement.predicted) - _FIGURES):
        yield f"predicted: {unknown[0]!r} is unknown"
    if missing := sorted(ring - set(placement.addresses)):
        yield f"addresses: {missing[0]!r} is missing"
    for name, holder in placement.mirrors.items():
        if holder not in placement.addresses:
            yield f"mirrors.{name}: {holder!r} is not among the addresses"
    if "prefill" not in placement.programs or set(placement.stages) != set(placement.programs):
        yield "programs: stages and programs are for prefill and, with states, decode"
    for phase, programs in placement.programs.items():
        if odd := sorted(ring ^ set(programs)):
            yield f"programs.{phase}: {odd[0]!r} is {'missing' if odd[0] in ring else 'not in the ring'}"
        for number, stage in enumerate(placement.stages[phase]):
            if odd := sorted(set(stage.devices) - ring):
                yield f"stages.{phase}[{number}]: {odd[0]!r} is not in the ring"
            if (stage.share == "one") != (len(stage.devices) == 1):
                yield f"stages.{phase}[{number}]: a stage is shared where it has several devices"
