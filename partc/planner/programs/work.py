"""The work of devices in a phase, unit by unit: what `step.py` makes programs of.

| item | calls | rows |
| --- | --- | --- |
| `connect` | what stands before and behind blocks: norms, residual sums | those that its values have |
| `enter` | the products that begin a block | by tiles, while the tiles are gathered; else all |
| `inner` | attention, or an activation | all |
| `leave` | the product that ends a block | by tiles, each summed over the devices; else all, and then the sum |
| `alone` | everything between | all |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from partc.format.dims import Shape, symbols
from partc.format.plan import Exchange
from partc.format.program import Run, Sample

ROWS = "sequence"
"""The symbol of the axis that tiles divide."""

Kind = Literal["alone", "connect", "enter", "inner", "leave"]


@dataclass(frozen=True)
class Call:
    """A piece of work of one device: one graph."""

    run: Run
    """With the values of the whole graph."""
    by_rows: bool = False
    """Whether it computes each row by itself, so that it can be called for some of them."""
    is_kept: bool = False
    """Whether it is made even where nobody reads what it makes: it has states, or somebody has decided before."""


Calls = tuple[Call | None, ...]
"""By rank; None where a device has no share."""


@dataclass(frozen=True)
class Compute:
    """A piece of work of all devices of a unit."""

    kind: Kind
    calls: Calls
    by_tiles: bool = False
    """`enter`: while tiles are gathered, if its values lie in tiles."""
    own_rows: bool = False
    """Each device computes its rows, whatever it has; `inner` work only where rows do not look at each other."""


@dataclass(frozen=True)
class Sum:
    """The sum of what the shares of a block make."""

    total: str
    parts: tuple[str | None, ...]
    """By rank; None where a device has no share."""
    exchange: Exchange
    leave: Calls = ()
    """What makes the parts; empty where it was done before."""


Item = Compute | Sum


@dataclass(frozen=True)
class UnitWork:
    """The work of the devices of a unit, in its order."""

    devices: tuple[str, ...]
    items: tuple[Item, ...]

    def calls(self, rank: int) -> Iterator[Call]:
        """Those of a device."""
        for item in self.items:
            calls = item.calls if isinstance(item, Compute) else item.leave
            if calls and (call := calls[rank]):
                yield call

    def reads(self, rank: int) -> list[str]:
        """The values that a device reads and the unit does not make."""
        made = {name for call in self.calls(rank) for name in call.run.outputs}
        made |= {item.total for item in self.items if isinstance(item, Sum)}
        return [name for call in self.calls(rank) for name in call.run.inputs if name not in made]


@dataclass(frozen=True)
class Values:
    """The values of a request: what it brings, what it ends with, and what programs must know of those between."""

    given: Mapping[str, bool]
    """Input of a request → whether every step brings a new value of it; others come in the first step alone."""
    on_devices: frozenset[str]
    """Inputs that every device has by itself in every step: positions."""
    results: tuple[str, ...]
    """Values that the source hands to the client."""
    sample: Sample | None
    """The choice of the next token, which then is the result; None: the model does not generate."""
    order: Sequence[str] = ()
    """The order of values in messages, behind `given`; those that it leaves out follow as they are read."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Of all that graphs read and make; needed where devices divide rows."""

    @property
    def later(self) -> Values:
        """The same of a step behind the first."""
        return replace(self, given={name: is_new for name, is_new in self.given.items() if is_new})

    @property
    def ends(self) -> tuple[str, ...]:
        """The values that the calls make in the end: the logits, or the results."""
        return (self.sample.logits,) if self.sample else self.results

    def has_rows(self, name: str) -> bool:
        """Whether its size depends on the rows of a step."""
        return any(ROWS in symbols(dim) for dim in self.shapes[name])

    def axis(self, name: str) -> int | None:
        """The axis of its rows, where they have one to themselves."""
        shape = self.shapes[name]
        return shape.index(ROWS) if ROWS in shape else None
