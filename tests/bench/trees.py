"""Two trees of partc side by side: the rings of `tests.bench.ring`, compiled and run by each tree's own code.

    python -m tests.bench.trees --old ../old-checkout --folder /tmp/trees [--model 110M] [--quantize int4] [--rounds 15]

Rings of both trees are alive at once and take turns, so a round compares what the machine did in the same second. For
each ring and figure, the ratio old / new of the rounds' medians is printed: its median over the rounds, with a 95 %
interval of that median (bootstrap). Above 1 the new tree is faster. Processor time of all runners is compared likewise.
Both trees must have `tests.bench.ring`; nothing else is asked of the old one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

FIGURES = ("token", "compute", "hop", "cpu", "pair", "prompt")
_WORKER = """
import json, sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tests.bench.ring.builds import build
from tests.bench.ring.turns import Measured, Member, TOKENS
folder, checkpoint, model, quantize, names = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
with ExitStack() as stack:
    rings = {n: Member(build(folder, n, checkpoint, quantize), TOKENS[model], stack) for n in names.split(",")}
    print("ready", flush=True)
    for line in sys.stdin:
        ring = rings[line.strip()]
        ring.measured = Measured()
        for ask in (ring.decode, ring.decode, ring.decode, ring.pair, ring.prompt):
            ask()
        print(json.dumps(asdict(ring.measured)), flush=True)
"""


class Tree:
    """One tree's rings, in a process of its own."""

    def __init__(self, root: Path, folder: Path, checkpoint: Path, options: argparse.Namespace) -> None:
        """Compile what is missing and start the rings."""
        arguments = [str(folder), str(checkpoint), options.model, options.quantize, options.rings]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Wait until the rings stand."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise SystemExit("a tree did not start; see above")

    def turn(self, ring: str) -> dict[str, Any]:
        """One turn of a ring; figure → seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{ring}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the rings."""
        self._process.communicate()


def main() -> None:
    """Compile, measure, print."""
    options = _parser().parse_args()
    checkpoint = (options.checkpoint or options.folder / "checkpoint").resolve()
    if not (checkpoint / "model.safetensors").exists():
        from tests.bench.random_models import MODELS

        checkpoint.mkdir(parents=True)
        MODELS[options.model].make_checkpoint(checkpoint.parent)
    here = Path(__file__).resolve().parents[2]
    trees = {}
    for name, root in (("old", options.old.resolve()), ("new", here)):
        trees[name] = Tree(root, (options.folder / name).resolve(), checkpoint, options)
        trees[name].wait()
    names = options.rings.split(",")
    rounds: dict[str, list[dict[str, dict[str, Any]]]] = {ring: [] for ring in names}
    for number in range(1 + options.rounds):
        for ring in names:
            order = list(trees) if number % 2 else list(trees)[::-1]
            turns = {name: trees[name].turn(ring) for name in order}
            if number:  # the first time, buffers are made and caches are cold
                rounds[ring].append(turns)
        print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
    for tree in trees.values():
        tree.close()
    _tell(rounds)


def _tell(rounds: dict[str, list[dict[str, dict[str, Any]]]]) -> None:
    print(f"load {os.getloadavg()[0]:.1f}; ratio old / new, with the 95 % interval of its median")
    print(f"{'ring':8} {'figure':8} {'old':>10} {'new':>10} {'ratio':>7}  interval")
    for ring, turns in rounds.items():
        for figure in FIGURES:
            pairs = [
                tuple(statistics.median(t[name][figure] or [0.0]) for name in ("old", "new")) for t in turns
            ]
            if not all(old and new for old, new in pairs):
                continue
            ratios = np.array([old / new for old, new in pairs])
            low, high = _interval(ratios)
            old, new = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
            print(
                f"{ring:8} {figure:8} {old:8.3f}ms {new:8.3f}ms {np.median(ratios):7.3f}  {low:.3f}-{high:.3f}"
            )


def _interval(ratios: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    draws = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(low), float(high)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.trees", description="Two trees side by side."
    )
    parser.add_argument("--old", type=Path, required=True, help="a checkout of the tree to compare with")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and builds")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--model", default="110M")
    parser.add_argument("--quantize", default="int4")
    parser.add_argument("--rings", default="uncut,two,three")
    parser.add_argument("--rounds", type=int, default=15)
    return parser


if __name__ == "__main__":
    main()
