"""Guessed tokens beside none: rings of processes on links that are slow on purpose, drafts that are right in part.

    python -m tests.bench.drafts --folder /tmp/drafts                      # 2, 3 and 5 devices, 0.1 to 25 ms
    python -m tests.bench.drafts --folder /tmp/drafts --devices 3 --latencies 5 --runs 7
    python -m tests.bench.drafts --folder /tmp/drafts --devices 1 --model 1.1B --quantize int4 --runner native

Every device is a runner in a network namespace of its own, and sleeps after each call so that it computes with a share
of a core (`--cores`). As root, on Linux; the runner is the one in Python. A device alone is not slowed, and may be any
runner. The model has random weights, and no text of anybody: the source is told to expect the answer with a part of its
tokens right (`--shares`), which is what a text that repeats itself as much would give it. Requests with and without
guesses take turns, and every token is compared.

`g` is the share of tokens whose guess was right; `formula` is (1 - g) · lap + g · max(slowest, lap / W), of the lap and
the busiest device measured without guesses, for steps of one token in a ring.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.format.message_parts import Sampling
from partc.planner.model.drafted import Pace
from partc.planner.model.plan_file import PLAN_FILE
from partc.runtime.client.client import Client
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Result
from tests.bench.llamas import SHAPES
from tests.bench.sharing.field import MBIT_BYTES, run_quietly, throttled_ring
from tests.living.network import Speed

PROMPT = 32
RATE_MBIT = 1000.0
DRAWN = Sampling(temperature=0.8, seed=1)


@dataclass(frozen=True)
class Row:
    """One kind of drafts in one ring."""

    share: float
    times: tuple[float, ...]
    """Time without guesses by that with them, of each pair."""
    result: Result
    """The last one with guesses."""
    formula: float | None
    """Times as fast by the formula; None: one device."""

    @property
    def g(self) -> float:
        """Share of tokens whose guess was right."""
        return self.result.accepted / len(self.result.tokens[0])


def main() -> None:
    """Compile what is missing, measure, print."""
    options = _parser().parse_args()
    print("devices  latency  right      g  times as fast (least - most)  formula  rows a token")
    for devices in map(int, options.devices.split(",")):
        for latency in map(float, options.latencies.split(",")):
            for row in measured(options, devices, latency / 1e3):
                tokens = len(row.result.tokens[0])
                work = 1 + (row.result.drafted - row.result.accepted) / tokens
                print(
                    f"{devices:7}  {latency:4g} ms  {row.share:5.0%}  {row.g:5.2f}  "
                    f"{statistics.median(row.times):6.2f} ({min(row.times):.2f} - {max(row.times):.2f})"
                    f"{'-' if row.formula is None else f'{row.formula:.2f}':>18}  {work:12.2f}",
                    flush=True,
                )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.drafts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", required=True, help="for builds")
    parser.add_argument("--devices", default="2,3,5", metavar="N", help="(default: 2,3,5)")
    parser.add_argument("--model", default="110M", choices=list(SHAPES), help="(default: %(default)s)")
    parser.add_argument("--quantize", default="none", help="(default: %(default)s)")
    parser.add_argument(
        "--arch", default="x86_64", help="of devices; `host`: all of this processor's instructions"
    )
    parser.add_argument(
        "--runner",
        choices=["native", "python"],
        default="python",
        help="of a device alone (default: %(default)s)",
    )
    parser.add_argument("--latencies", default="0.1,1,5,25", metavar="MS", help="(default: 0.1,1,5,25)")
    parser.add_argument(
        "--shares", default="0,0.2,0.6,0.95,1", help="of drafts that are right (default: %(default)s)"
    )
    parser.add_argument("--cores", type=float, default=0.2, help="of each device (default: %(default)g)")
    parser.add_argument("--tokens", type=int, default=96, help="of an answer (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="pairs of requests (default: %(default)s)")
    return parser


def measured(options: argparse.Namespace, devices: int, latency_s: float) -> Iterator[Row]:
    """Every kind of drafts in one ring."""
    build, speed = compiled(options, devices), Speed(RATE_MBIT * MBIT_BYTES, latency_s)
    slow = throttled_ring(build, options.folder, options.cores, speed)
    with slow if devices > 1 else alone(build, options.runner) as client:
        plain = ask(client, options.tokens, drafts=False)
        pace = pace_of(plain) if devices > 1 else None
        for share in map(float, options.shares.split(",")):
            yield compared(client, plain, share, options, pace)


@contextmanager
def alone(build: Path, runner: str) -> Iterator[Client]:
    """A client of a device that nothing slows."""
    with launch_local(build, runner=runner) as started, started.client() as client:
        yield client


def compiled(options: argparse.Namespace, devices: int) -> Path:
    """The build of equal parts for so many devices; made only if it is missing."""
    kind = f"{options.model}-{options.quantize}-{options.arch}"
    place: Path = options.folder / f"llama-{kind}-{devices}-{options.tokens}"
    if not (place / "build" / PLAN_FILE).exists():
        place.mkdir(parents=True, exist_ok=True)
        shape: dict[str, Any] = SHAPES[options.model]
        model = {
            "model": {"config": {"model_type": "llama", **shape}, "seed": 0},
            "max_sequence": PROMPT + options.tokens,
            "max_requests": 1,
            "quantize": options.quantize,
        }
        figures = {
            "target": "tvm", "arch": options.arch, "threads": 1, "memory": "8 GB", "flops": "10 GFLOP/s",
            "memory_bandwidth": "5 GB/s",
        }  # fmt: skip
        target = {
            "objective": "throughput",
            "source": "a",
            "devices": dict.fromkeys("abcdefgh"[:devices], figures),
            "links": {"default": {"bandwidth": f"{RATE_MBIT:g} Mbit/s", "latency": "0.1 ms"}},
        }
        files = place / "model.yaml", place / "devices.yaml"
        for file, content in zip(files, (model, target), strict=True):
            file.write_text(json.dumps(content))
        run_quietly("partc.cli", "compile", files[0], "--target", files[1], "-o", place / "build")
    return place / "build"


def ask(client: Client, tokens: int, *, drafts: bool, expected: Sequence[int] = ()) -> Result:
    """One request."""
    prompt = list(range(5, 5 + PROMPT))
    return client.generate(prompt, tokens, DRAWN, ignore_eos=True, drafts=drafts, expected=expected)


def pace_of(plain: Result) -> Pace:
    """The lap and the busiest device of a request without guesses, means of its tokens."""
    busiest = max(float(timings.column("compute_s")[1:].mean()) for timings in plain.timings.values())
    source = next(iter(plain.timings.values())).column("started_s")[1:]
    return Pace(float((source[-1] - source[0]) / (len(source) - 1)), busiest)


def compared(
    client: Client, plain: Result, share: float, options: argparse.Namespace, pace: Pace | None
) -> Row:
    """Requests with and without guesses, in turns."""
    right, chance = list(plain.tokens[0]), random.Random(1)
    most = client.role.model.vocab_size or 2
    expected = [token if chance.random() < share else chance.randrange(most) for token in right]
    times = []
    for _ in range(options.runs):
        without = ask(client, options.tokens, drafts=False)
        guessed = ask(client, options.tokens, drafts=True, expected=expected)
        assert list(without.tokens[0]) == list(guessed.tokens[0]) == right, "a token depends on guesses"
        times.append(without.elapsed_s / guessed.elapsed_s)
    g = guessed.accepted / len(right)
    return Row(share, tuple(times), guessed, None if pace is None else pace.lap_s / pace.token_s(g))


if __name__ == "__main__":
    main()
