"""The contract of engines, and the table of those there are.

An engine computes the sub-modules of one device. It holds the states of all slots; a slot is the room of one request.

| method | in short |
| --- | --- |
| `load`, `release` | a sub-module is there, or its memory is given back |
| `settle` | what is there is put, piece by piece, where steps read it fastest |
| `reset` | a request begins in a slot |
| `run` | one sub-module, one step of one slot |
| `run_shared` | one sub-module, a step of several rows, each in a slot of its own or behind another in the same |
| `read_rows`, `write_rows` | rows of a state leave the engine, and come back into this or another one |

The engine may be made by one thread and used by others. All calls but `load`, `release` and `settle` come one after
the other, and so do these three; but they may run beside all others that are not about the same sub-module, and
`settle` beside those too.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from partc.errors import BundleError, RunError
from partc.format.build import Submodule
from partc.format.dtypes import Array
from partc.format.role import Role

T = TypeVar("T")


class Engine(Protocol):
    """Computes the sub-modules of one device; it begins with none of them loaded."""

    def load(self, submodule: str) -> None:
        """Read a sub-module and make room for its states in all slots.

        In slots that are in use its states are zero, with the sizes of the request. A second call does nothing.

        Raises:
            BundleError: there is no such sub-module, or the engine cannot read it.
        """

    def release(self, submodule: str) -> None:
        """Give back the memory of a sub-module: code, weights that no other one needs, states of all slots.

        A sub-module that is not loaded is left as it is.
        """

    def settle(self) -> bool:
        """Put a piece of what is loaded where steps read it fastest; O(milliseconds).

        Steps compute the same before and after, and meanwhile.

        Returns:
            Whether there may be another piece.

        Raises:
            BundleError: a file that was loaded cannot be read any more.
        """

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """Begin a request in a slot: its states are zero and have the sizes that `dims` gives.

        Zero matters, or at least that they are finite: a step multiplies the rows that it masks by 0, and what an
        earlier request left there, an infinity or a NaN, would survive that.
        """

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """Compute a sub-module that is loaded; the states of the slot advance in place.

        Args:
            submodule: its name in the build.
            slot: from 0, below the build's `max_requests`.
            inputs: in the order of the build, with the shapes that `dims` gives them.
            dims: the sizes of the step, by symbol.

        Returns:
            The outputs in the order of the build. Nobody changes them while the caller has them.

        Raises:
            RunError: the engine failed, or has no code for these sizes.
        """

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """Compute several tokens at once: as `run`, but row i belongs to the one sequence of `slots[i]`.

        The results are those of one row after the other: a slot that comes several times has consecutive tokens of its
        request, and each row sees the states that those before it have written.

        Args:
            submodule: its name in the build.
            slots: two or more; every one has a request of one sequence.
            inputs: in the order of the build, with a row for each slot.
            dims: the sizes of the step; `batch` is the number of slots, and `sequence` 1.

        Returns:
            The outputs as those of `run`, with a row for each slot.

        Raises:
            RunError: the engine failed.
        """

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """A copy of some rows of one sequence's state, `[end - begin, heads, d]` (`partc.runtime.engines.states`).

        Args:
            submodule: its name in the build.
            slot: one that was reset.
            state: name of one of its states.
            row: number of the sequence in the request, from 0.
            begin: the first position.
            end: the one behind the last. A state of kind `whole` is one row: 0 to 1.

        Returns:
            A contiguous array in the element type of the state (bfloat16 as its bits).

        Raises:
            RunError: there is no such state, sequence or position.
        """

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """Put rows that `read_rows` gave, of this engine or another one, to the positions from `begin` on.

        Raises:
            RunError: there is no such state or sequence, or the rows do not fit in shape or element type.
        """


_ENGINES = {
    "ort": ("partc.runtime.engines.ort", "OrtEngine"),
    "plan": ("partc.runtime.engines.plan", "PlanEngine"),
    "gpu": ("partc.runtime.engines.gpu.engine", "GpuEngine"),
    "null": ("partc.runtime.engines.null", "NullEngine"),
}
"""Kind → module and class; imported when asked for."""


def make_engine(role: Role, folder: Path) -> Engine:
    """The engine that the build asks for, with nothing loaded.

    Raises:
        BundleError: it is unknown or not installed.
    """
    kind = role.engine.kind
    if kind not in _ENGINES:
        raise BundleError(
            f"no engine {kind!r}", where="engine.kind", hint=f"this partc has {', '.join(_ENGINES)}"
        )
    module, name = _ENGINES[kind]
    engine: Engine = getattr(importlib.import_module(module), name)(role, folder)
    return engine


def load_engine(role: Role, folder: Path) -> Engine:
    """The engine that the build asks for, with the sub-modules loaded and settled that the programs in force run.

    Raises:
        BundleError: it is unknown, not installed, or cannot read a sub-module.
    """
    engine = make_engine(role, folder)
    for submodule in role.running:
        engine.load(submodule)
    settle(engine)
    return engine


def settle(engine: Engine) -> None:
    """Put all that is loaded where steps read it fastest: for who measures, or has nothing to do meanwhile."""
    while engine.settle():
        pass


def submodule_named(name: str, role: Role) -> Submodule:
    """A sub-module of the build; raises BundleError where it has none of that name."""
    if name not in role.submodules:
        known = ", ".join(role.submodules)
        raise BundleError(f"there is no sub-module {name!r:.60}", hint=f"this device has {known}")
    return role.submodules[name]


def loaded(name: str, modules: Mapping[str, T]) -> T:
    """The engine's entry for a sub-module; raises RunError where it is not loaded."""
    try:
        return modules[name]
    except KeyError:
        raise RunError(f"{name!r:.60} is not loaded", cause="bug") from None
