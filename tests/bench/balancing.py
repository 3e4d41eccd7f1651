"""A ring of three local processes one of which is throttled in the middle of a run, and the balancer. One command:

    python -m tests.bench.balancing                               # 110M, `b` four times slower, 5 rounds
    python -m tests.bench.balancing --model storyteller --rounds 20 --keep /tmp/b

Shown are the time of a token before, while the device is throttled, and after the moves of the balancer; then the ring
as it ended in turns with a ring of its own build, the best that can be planned for the throttled machine: the placement
that `optimal` finds with the measured times, those of the device multiplied by the factor, over all sub-modules and not
only over the pieces that lie on two disks. Both rings are throttled alike, by sleeping (`tests/living/throttle.py`).

The ring is planned with measured times (`partc profile`), in equal shares; any two devices can hold the model, and
`survive: one` lays the copies that can be moved. Rows are not mirrored, since the rival has none to mirror. Times are
those from step to step at the source, one request at a time. On a busy machine they say nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from partc.balance.artifacts import read_artifacts
from partc.balance.order import Order
from partc.balance.pauses import COOL_DOWN_S
from partc.cli.balance import balanced, print_move
from partc.errors import PartcError
from partc.format.messages import Placed
from partc.format.placement import Stages
from partc.planner.exact.optimal import seek_best
from partc.planner.model.change import with_speeds
from partc.planner.model.problem import Problem
from partc.runtime.client.client import Client
from partc.runtime.client.launch import launch_local
from partc.runtime.client.request import Request
from partc.runtime.client.results import Timings
from tests.bench.predictions import MODELS, partc
from tests.living.throttle import Throttle

MEMORY = {"storyteller": 9, "110M": 320}
"""Model → MB of each device; two of them hold it."""
VICTIM, PROMPT, TOKENS = "b", list(range(3, 19)), 100
LINED_UP = 40
"""Requests in line: a move must pay for the tokens still to come."""
CALM_S = COOL_DOWN_S + 15
"""No move follows after so long without one."""
MOST_S = 400.0
LINGUALINKED = "LinguaLinked's: 1.29x and 1.32x"


@dataclass
class Run:
    """The times of a run that is balanced."""

    moves: list[Placed] = field(default_factory=list)
    steps: dict[int, list[float]] = field(default_factory=dict)
    """Epoch → seconds from step to step."""
    moved_at: float = 0.0

    def tell(self, order: Order, outcome: Placed | PartcError) -> None:
        """Note a move."""
        print_move(order, outcome)
        self.moved_at = time.monotonic()
        if isinstance(outcome, Placed):
            self.moves.append(outcome)

    def took(self, timings: Timings) -> None:
        """Note the steps of a request, by the source's clock."""
        for epoch, seconds in steps_by_epoch(timings).items():
            self.steps.setdefault(epoch, []).extend(seconds)


def main() -> None:
    """Print the figures of one run and of its rounds."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = options.keep or Path(scratch)
        throttle = Throttle(folder / "throttle")
        throttle.slow(VICTIM, 1.0)
        moving, static = builds(folder, options.model, options.factor)
        ring, rival = (stack.enter_context(_client(build, throttle)) for build in (moving, static))
        before = token_s(ring)
        throttle.slow(VICTIM, options.factor)
        run = settle(ring, moving)
        during, *_, after = (median(seconds) for _, seconds in sorted(run.steps.items()))
        print(
            f"before {1e3 * before:.2f} ms, throttled {1e3 * during:.2f} ms, after {1e3 * after:.2f} ms per token"
        )
        print(f"gain of {len(run.moves)} moves: {during / after:.2f}x; {LINGUALINKED}")
        rounds = [(token_s(ring), token_s(rival)) for _ in range(options.rounds)]
    for mine, best in rounds:
        print(
            f"balanced {1e3 * mine:.2f} ms, best static plan {1e3 * best:.2f} ms: {best / mine:.1%} of its speed"
        )
    print(f"median of {options.rounds} rounds: {median(best / mine for mine, best in rounds):.1%}; aim: 90 %")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.balancing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=MODELS, default="110M")
    parser.add_argument("--factor", type=float, default=4.0, help="so many times slower (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep builds there")
    return parser


def builds(folder: Path, model: str, factor: float) -> tuple[Path, Path]:
    """The build that can be balanced, and that of the best plan for the throttled machine."""
    file, shares = folder / "model.yaml", ("layers 0-3", "layers 4-7", "layers 8-11")
    lines = [line for line in MODELS[model].splitlines() if not line.startswith("max_")]
    file.write_text("\n".join([*lines, "task: text-generation", "dtype: float32", _SETTINGS]))
    first, second = folder / "first.yaml", folder / "second.yaml"
    first.write_text(
        _devices(model, ["survive: one", "mirror: off", _place(dict(zip("abc", shares, strict=True)))])
    )
    partc("profile", file, "--target", first, "-o", folder / "profile")
    partc("compile", file, "--target", folder / "profile" / "devices.yaml", "-o", folder / "moving")
    stages = best_static(read_artifacts(folder / "moving").problem, factor)
    held = {stage.device: f"submodules {stage.first}-{stage.last}" for stage in stages}
    print(f"best static plan: {', '.join(f'{what} on {name}' for name, what in held.items())}", flush=True)
    second.write_text(_devices(model, ["measured: profile/times.json", _place(held)]))
    partc("compile", file, "--target", second, "-o", folder / "static")
    return folder / "moving", folder / "static"


_SETTINGS = """\
max_requests: 1
max_sequence: 256
workload: {prompt: 16, generate: 100}
"""


def _devices(model: str, lines: Sequence[str]) -> str:
    figures = (
        f"target: ort, threads: 1, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: {MEMORY[model]} MB"
    )
    devices = [f"  {name}: {{{figures}}}" for name in "abc"]
    links = ["links:", "  default: {bandwidth: 1 Gbit/s, latency: 0.1 ms}", ""]
    return "\n".join(["source: a", "objective: latency", *lines, "devices:", *devices, *links])


def _place(held: Mapping[str, str]) -> str:
    return f"place: {{{', '.join(f'{name}: {what}' for name, what in held.items())}}}"


def best_static(problem: Problem, factor: float) -> Stages:
    """The best plan where the throttled device takes so many times as long."""
    solution = seek_best(with_speeds(problem, {VICTIM: 1 / factor})).solution
    assert solution is not None, "two devices hold the model"
    return solution.stages


@contextmanager
def _client(build: Path, throttle: Throttle) -> Iterator[Client]:
    with launch_local(build, env=throttle.env) as ring, ring.client() as client:
        yield client


def settle(client: Client, build: Path) -> Run:
    """Run until the balancer has been calm for a while."""
    run, began, line = Run(moved_at=time.monotonic()), time.monotonic(), list[Request]()
    with balanced(client, build, run.tell):
        while time.monotonic() - run.moved_at < CALM_S and time.monotonic() - began < MOST_S:
            line += [_ask(client) for _ in range(LINED_UP - len(line))]
            run.took(line.pop(0).result().timings[client.role.source])
    for request in line:
        request.cancel()
    client.wait(line, CALM_S)
    return run


def token_s(client: Client, requests: int = 3) -> float:
    """The median time of a token in some requests."""
    tables = [_ask(client).result().timings[client.role.source] for _ in range(requests)]
    return median(second for table in tables for found in steps_by_epoch(table).values() for second in found)


def steps_by_epoch(timings: Timings) -> dict[int, list[float]]:
    """Epoch → seconds from the start of each step in it to the next; the prompt and the last token are left out."""
    seconds, epochs = np.diff(timings.column("started_s")), timings.column("epoch")
    found: dict[int, list[float]] = {}
    for number in range(1, len(seconds)):
        if epochs[number] == epochs[number + 1]:
            found.setdefault(int(epochs[number]), []).append(float(seconds[number]))
    return found


def _ask(client: Client) -> Request:
    return client.submit([PROMPT], max_new_tokens=TOKENS, ignore_eos=True)


if __name__ == "__main__":
    main()
