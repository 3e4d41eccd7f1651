"""The aims for partc's speed, compared with the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.speed.contestants import (
    LLAMA_CPP,
    LLAMA_RPC,
    ORT_GENAI,
    RING,
    THREE,
    TWO,
    UNCUT,
    UNCUT_64,
    UNCUT_128,
)
from tests.bench.speed.figures import Figure, Table

HOP_US = 250.0
"""At most, between two devices on one machine, encrypted."""


@dataclass(frozen=True)
class Aim:
    """One contestant at least so many times as fast as another, on one thread each."""

    says: str
    kind: str | None
    """The format; None is every one."""
    one: tuple[str, str]
    """Contestant and what it is asked."""
    other: tuple[str, str]
    least: dict[str, float]
    """By model."""
    wall: bool = False
    """Whether processes work side by side in it, which only the wall shows."""


def _both(least: float) -> dict[str, float]:
    return {"110M": least, "1.1B": least}


def _against(kind: str | None, other: str, phase: str, least: dict[str, float], one: str = UNCUT) -> Aim:
    return Aim(
        f"{phase}: {one.removeprefix('partc, ')} over {other}", kind, (one, phase), (other, phase), least
    )


_INT4_DECODE = {"110M": 0.97, "1.1B": 0.92}


AIMS = (
    _against(None, ORT_GENAI, "decode", _both(1.0)),
    _against("int4", LLAMA_CPP, "decode", _INT4_DECODE),
    _against("int4", LLAMA_CPP, "prefill", _both(1.0)),
    *(
        _against("int4", LLAMA_CPP, phase, least, one)
        for one in (UNCUT_64, UNCUT_128)
        for phase, least in (("decode", _INT4_DECODE), ("prefill", _both(1.0)))
    ),
    _against("int8", LLAMA_CPP, "decode", _both(1.05)),
    _against("int8", LLAMA_CPP, "prefill", _both(3.0)),
    _against("float32", LLAMA_CPP, "decode", _both(0.9)),
    _against("float32", LLAMA_CPP, "prefill", _both(1.3)),
    Aim("decode: cut in 2 over ring of 1", "int4", (TWO, "decode"), (RING, "decode"), {"110M": 0.93, "1.1B": 0.97}),
    Aim("decode: cut in 3 over ring of 1", "int4", (THREE, "decode"), (RING, "decode"), {"110M": 0.88, "1.1B": 0.95}),
    Aim("decode: cut in 2 over llama.cpp cut in 2", "int4", (TWO, "decode"), (LLAMA_RPC, "decode"), _both(1.2)),
    Aim("tokens/s: two requests over one, cut in 2", "int4", (TWO, "pair"), (TWO, "decode"), _both(1.6), True),
    Aim("prefill: cut in 2 over ring of 1", "int4", (TWO, "prefill"), (RING, "prefill"), _both(1.5), True),
)  # fmt: skip


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
            if table.threads != 1 or aim.kind not in (None, table.kind) or table.model not in aim.least:
                continue
            ratio = table.compare(aim.one, aim.other, "wall" if aim.wall else None)
            if ratio is not None:
                found.append(Outcome(aim.says, table.model, table.kind, aim.least[table.model], ratio))
    return found
