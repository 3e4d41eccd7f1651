"""`partc`, whose programs let tiles travel and devices compute one after the other: what overlap is held against.

python -m tests.bench.sharing.apart compile MODEL --target DEVICES --strategy galaxy
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from partc.cli.main import main
from partc.format.program import Recv, Send
from partc.planner.programs.exchanges import Calls, Group, nothing

_reduce_scatter = Group.reduce_scatter


def gather(self: Group, names: Callable[[int], tuple[str, ...]], calls: Calls = nothing) -> None:
    """All tiles first, then all products."""
    for rank in range(self.count):
        tiles = [(rank - step) % self.count for step in range(self.count)]
        for tile, following in pairwise(tiles):
            self.write(
                rank, Send(names(tile), self._behind(rank)), Recv(names(following), self._before(rank))
            )
        for tile in tiles:
            self.write(rank, *calls(rank, tile))


def reduce_scatter(
    self: Group, total: Callable[[int], str], part: Callable[[int, int], str | None], calls: Calls = nothing
) -> None:
    """All products first, then all sums."""
    for rank in range(self.count):
        for step in range(self.count):
            self.write(rank, *calls(rank, (rank + self.count - 1 - step) % self.count))
    _reduce_scatter(self, total, part)


if __name__ == "__main__":
    Group.gather = gather  # type: ignore[method-assign]
    Group.reduce_scatter = reduce_scatter  # type: ignore[method-assign]
    main()
