"""How often and by how much Galaxy's Algorithm 1 is behind the best shares by its own Eq. 5.

    python -m tests.bench.galaxy_gap [COUNT]

Random problems for which shares that fit exist: 2-5 devices within a factor of 6 in speed, 4-32 heads, 64-4096 columns;
all devices together have 1.02 to 2 times the memory of the weights. The best shares are those of an exact search.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator

from partc.planner.groups.algorithm1 import Shares, algorithm1
from partc.planner.groups.capacity import Kind, Layers
from partc.planner.groups.eq5 import best_shares, eq5_seconds


def draw_layers(rng: random.Random) -> Layers:
    """One problem as Algorithm 1 sees it; an attention takes a third of the memory, and of the time about as much."""
    count = rng.randint(2, 5)
    heads, columns = rng.choice([4, 8, 12, 16, 32]), rng.choice([64, 256, 1024, 4096])
    slowness = [6 ** rng.random() for _ in range(count)]
    parts = [rng.uniform(0.3, 1.0) for _ in range(count)]
    memory = rng.uniform(1.02, 2.0)
    return Layers(
        names=tuple("abcde"[:count]),
        budgets=tuple(memory * part / sum(parts) for part in parts),
        kinds=(
            Kind("heads", heads, 1 / 3 / heads, tuple(rng.uniform(0.35, 0.5) * slow for slow in slowness)),
            Kind(
                "columns", columns, 2 / 3 / columns, tuple(rng.uniform(0.6, 0.7) * slow for slow in slowness)
            ),
        ),
    )


def solvable(seed: int) -> Iterator[tuple[Layers, Shares]]:
    """Problems that have shares that fit, and the best ones."""
    rng = random.Random(seed)
    while True:
        layers = draw_layers(rng)
        if (best := best_shares(layers)) is not None:
            yield layers, best


def main(count: int) -> None:
    """Print how often Algorithm 1 fails, how often it is optimal, and its gaps."""
    gaps, failed = list[float](), 0
    for _, (layers, best) in zip(range(count), solvable(1), strict=False):
        found = algorithm1(layers)
        if found is None:
            failed += 1
        else:
            gaps.append(eq5_seconds(layers, found) / eq5_seconds(layers, best) - 1)
    behind = [gap for gap in gaps if gap > 1e-9]
    print(f"{count} problems that have a plan: Algorithm 1 fails in {failed} ({failed / count:.1%})")
    print(f"optimal in {len(gaps) - len(behind)} ({(len(gaps) - len(behind)) / count:.1%})")
    print(f"gap of those it solves: mean {statistics.mean(gaps):.2%}, worst {max(gaps):.1%}")
    print(
        f"gap where it is behind: mean {statistics.mean(behind):.2%}, median {statistics.median(behind):.2%}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
