"""The aims for partc's speed, compared with the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.random_models import MODELS
from tests.bench.speed.contestants import (
    LLAMA_CPP,
    LLAMA_RPC,
    LLAMAS,
    OPENVINO,
    ORT,
    ORT_64,
    ORT_128,
    ORT_GENAI,
    RING,
    THREE,
    TRANSFORMERS,
    TVM,
    TWO,
)
from tests.bench.speed.figures import Figure, Table
from tests.bench.speed.turns import READ, decode_at

HOP_US = 250.0
"""At most, between two devices on one machine, encrypted."""
DECODE, LONGER = decode_at(128), decode_at(512)


@dataclass(frozen=True)
class Aim:
    """One contestant at least so many times as fast as the fastest of others, on one thread each."""

    says: str
    kind: str | None
    """The format; None is every one."""
    one: tuple[str, str]
    """Contestant and what it is asked."""
    others: tuple[str, ...]
    """Contestants; the streaming read stands for the time of reading what a token reads."""
    asked: str
    """What those are asked."""
    least: dict[str, float]
    """By model."""
    wall: bool = False
    """Whether processes work side by side in it, which only the wall shows."""
    slowed: bool = False
    """Whether it is for small pages or fewer features of the processor, where no other aim holds."""


def _both(least: float) -> dict[str, float]:
    return {"110M": least, "1.1B": least}


def _recurrent(least: float) -> dict[str, float]:
    return {name: least for name, model in MODELS.items() if model.state_values}


def _against(
    kind: str | None,
    others: Sequence[str],
    asked: str,
    least: dict[str, float],
    one: str,
    slowed: bool = False,
) -> Aim:
    fastest = "the fastest of " if len(others) > 1 else ""
    says = f"{asked}: {one.removeprefix('partc ')} over {fastest}{others[0]}"
    return Aim(says, kind, (one, asked), tuple(others), asked, least, slowed=slowed)


def _between(
    says: str, one: tuple[str, str], other: tuple[str, str], least: dict[str, float], wall: bool = False
) -> Aim:
    return Aim(says, "int4", one, other[:1], other[1], least, wall)


_TVM = (
    _against("int4", LLAMAS, DECODE, _both(1.4), TVM),
    _against("int4", LLAMAS, LONGER, _both(1.6), TVM),
    _against("int4", [READ], DECODE, _both(0.8), TVM),
    _against("int8", [LLAMA_CPP], DECODE, _both(1.4), TVM),
    _against("float32", [LLAMA_CPP], DECODE, _both(1.2), TVM),
    _against("int4", LLAMAS, "prefill", _both(2.0), TVM),
    _against("int8", [LLAMA_CPP], "prefill", _both(3.5), TVM),
    _against("float32", [LLAMA_CPP], "prefill", _both(1.3), TVM),
    _against("int4", [OPENVINO], "prefill", _both(1.3), TVM),
    _against("int8", [OPENVINO], "prefill", _both(1.3), TVM),
    _against("float32", [OPENVINO], "prefill", _both(1.0), TVM),
    _against("int4", LLAMAS, DECODE, _both(1.0), TVM, slowed=True),
    _against("int4", LLAMAS, LONGER, _both(1.0), TVM, slowed=True),
)
_INT4_DECODE = {"110M": 0.97, "1.1B": 0.92}
_ORT = (
    _against(None, [ORT_GENAI], DECODE, _both(1.0), ORT),
    *(
        _against("int4", [LLAMA_CPP], asked, least, one)
        for one in (ORT, ORT_64, ORT_128)
        for asked, least in ((DECODE, _INT4_DECODE), ("prefill", _both(1.0)))
    ),
    _against("int8", [LLAMA_CPP], DECODE, _both(1.05), ORT),
    _against("int8", [LLAMA_CPP], "prefill", _both(3.0), ORT),
    _against("float32", [LLAMA_CPP], DECODE, _both(0.9), ORT),
    _against("float32", [LLAMA_CPP], "prefill", _both(1.3), ORT),
)
_RINGS = (
    _between("decode: cut in 2 over ring of 1", (TWO, DECODE), (RING, DECODE), {"110M": 0.93, "1.1B": 0.97}),
    _between("decode: cut in 3 over ring of 1", (THREE, DECODE), (RING, DECODE), {"110M": 0.88, "1.1B": 0.95}),
    _between("decode: cut in 2 over llama.cpp cut in 2", (TWO, DECODE), (LLAMA_RPC, DECODE), _both(1.2)),
    _between("tokens/s: two requests over one, cut in 2", (TWO, "pair"), (TWO, DECODE), _both(1.6), wall=True),
    _between("prefill: cut in 2 over ring of 1", (TWO, "prefill"), (RING, "prefill"), _both(1.5), wall=True),
)  # fmt: skip
_STATES = (
    _against("int4", [READ], DECODE, _recurrent(0.8), TVM),
    _against("int4", [TRANSFORMERS], "prefill", _recurrent(1.5), TVM),
)
AIMS = (*_TVM, *_ORT, *_RINGS, *_STATES)


@dataclass(frozen=True)
class Outcome:
    """An aim and what was found."""

    says: str
    model: str
    kind: str
    least: float
    found: Figure

    @property
    def met(self) -> bool:
        """By the median."""
        return self.found.median >= self.least


def outcomes(tables: Sequence[Table]) -> list[Outcome]:
    """The rows of all aims for which there are measurements."""
    found = []
    for aim in AIMS:
        for table in tables:
            cell = table.cell
            ratio = _found(aim, table) if _is_for(aim, table) else None
            if ratio is not None:
                model = cell.place.name
                found.append(Outcome(aim.says + cell.slowed_by, model, cell.kind, aim.least[model], ratio))
    return found


def _is_for(aim: Aim, table: Table) -> bool:
    cell = table.cell
    return (
        cell.threads == 1
        and aim.kind in (None, cell.kind)
        and cell.place.name in aim.least
        and aim.slowed == bool(cell.slowed_by)
    )


def _found(aim: Aim, table: Table) -> Figure | None:
    if aim.others == (READ,):
        return table.of_the_limit(*aim.one)
    other = table.fastest(aim.others, aim.asked)
    return None if other is None else table.compare(aim.one, (other, aim.asked), "wall" if aim.wall else None)
