"""Devices that share blocks, on slow links: what they take beside what the plan says.

    python -m tests.bench.sharing step --folder /tmp/sharing      # BERT-large, length 284, 3 devices, 125 Mbit/s
    python -m tests.bench.sharing tokens --folder /tmp/sharing    # decoding over links of 0.2, 1 and 5 ms

Every device is a runner in a network namespace of its own, and sleeps after each call so that it computes with a share
of a core (`--cores`) and messages do not wait for it. As root, on Linux; the runner is the one in Python. Two numbers
are fitted, on links of 1000 Mbit/s: the speed of a device, by what the model takes on one; and by the strategy `--fit`
the efficiency of a part of a block (`step`), or what a message takes besides the latency of its link (`tokens`). All
else follows from the plan:

- `one`: one device has the whole model, and sends nothing;
- `pipeline`: the best plan with one device a stage, where no device has memory for much more than its part;
- `megatron`, `sequence-parallel`, `galaxy`: blocks are shared;
- `galaxy-apart`: the same, but no tile travels while a device computes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partc.runtime.client.client import Client
from tests.bench.llamas import SHAPES
from tests.bench.sharing.field import APART, MBIT_BYTES, Field, Fit
from tests.living.network import Speed

STEP_STRATEGIES = "one,pipeline,megatron,sequence-parallel,galaxy,galaxy-apart"
TOKEN_STRATEGIES = "one,pipeline,galaxy"
HIDDEN, HEADS, VOCABULARY = 1024, 16, 30522
LLAMA = "110M"
PROMPT, TOKENS = 32, 33


def main() -> None:
    """Compile what is missing, measure, print."""
    options = _parser().parse_args()
    options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sharing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    step = commands.add_parser("step", help="an encoder: one step of many rows")
    step.set_defaults(command=steps)
    step.add_argument("--layers", type=int, default=24, help="(default: 24)")
    step.add_argument("--length", type=int, default=284, help="tokens of the input (default: 284)")
    tokens = commands.add_parser("tokens", help="a decoder: steps of one row")
    tokens.set_defaults(command=token_steps)
    tokens.add_argument("--latencies", default="0.2,1,5", metavar="MS", help="(default: 0.2,1,5)")
    for command, strategies, rate, cores in (
        (step, STEP_STRATEGIES, 125.0, 0.2),
        (tokens, TOKEN_STRATEGIES, 1000.0, 0.1),
    ):
        command.add_argument("--folder", type=Path, metavar="DIR", required=True, help="for builds")
        command.add_argument("--strategies", default=strategies, help="(default: %(default)s)")
        command.add_argument("--devices", type=int, default=3, help="(default: 3)")
        command.add_argument(
            "--cores", type=float, default=cores, help="of each device (default: %(default)g)"
        )
        command.add_argument(
            "--rate", type=float, default=rate, metavar="MBIT", help="of a link (default: %(default)g)"
        )
        command.add_argument(
            "--fit", default="galaxy", help="strategy that the efficiency is fitted by (default: galaxy)"
        )
        command.add_argument("--runs", type=int, default=5, help="(default: 5)")
    return parser


def steps(options: argparse.Namespace) -> None:
    """An encoder under every strategy."""
    prompt = [1000 + 7 * number for number in range(options.length)]

    def asked(client: Client) -> float:
        return client.encode([prompt]).elapsed_s

    config = {
        "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": options.layers,
        "num_attention_heads": HEADS, "intermediate_size": 4 * HIDDEN, "vocab_size": VOCABULARY,
    }  # fmt: skip
    model = {
        "model": {"config": config, "seed": 0},
        "task": "feature-extraction",
        "max_sequence": options.length,
        "max_requests": 1,
        "workload": {"prompt": options.length},
    }
    weights = 4.0 * (VOCABULARY * HIDDEN + 12 * HIDDEN**2 * options.layers)
    place = options.folder / f"bert-{options.layers}-{options.length}-{options.devices}"
    field = Field(place, model, weights, options.devices, options.cores, "prefill", asked, options.runs)
    table(field, options, Speed(options.rate * MBIT_BYTES), field.fit(options.fit))


def token_steps(options: argparse.Namespace) -> None:
    """A decoder under every strategy, over links of every latency."""

    def asked(client: Client) -> float:
        result = client.generate(list(range(1, PROMPT + 1)), TOKENS, ignore_eos=True)
        began = result.timings[client.role.source].column("started_s")[1:]
        return float(np.median(np.diff(began)))

    shape: dict[str, Any] = SHAPES[LLAMA]
    model = {
        "model": {"config": {"model_type": "llama", **shape}, "seed": 0},
        "max_sequence": 2 * PROMPT + TOKENS,
        "max_requests": 1,
        "workload": {"prompt": PROMPT, "generate": TOKENS},
    }
    place = options.folder / f"llama-{LLAMA}-{options.devices}"
    field = Field(place, model, 4.6e8, options.devices, options.cores, "decode", asked, options.runs)
    fit = field.fit(options.fit)
    for latency in map(float, options.latencies.split(",")):
        speed = Speed(options.rate * MBIT_BYTES, latency / 1e3)
        table(field, options, speed, fit)


def table(field: Field, options: argparse.Namespace, speed: Speed, fit: Fit) -> None:
    """Planned and measured milliseconds of every strategy."""
    print(f"\n{field.count} devices of {field.cores:g} cores, {fit.gflops:.2f} GFLOP/s, ", end="")
    print(f"{fit.message_s * 1e3:.2f} ms a message, efficiency {fit.efficiency:.2f}", end="")
    print(f"\nlinks of {speed.bytes_per_s / MBIT_BYTES:g} Mbit/s, {speed.latency_s * 1e3:g} ms", flush=True)
    print(f"{'ms':18}{'planned':>9}{'measured':>10}{'ratio':>7}   least - most")
    for strategy in options.strategies.split(","):
        build = field.compiled(strategy, fit, speed)
        planned = field.predicted_s(build, fit, overlap=not strategy.endswith(APART))
        row(strategy, planned, field.measured_s(build, speed))


def row(strategy: str, planned: float, taken: Sequence[float]) -> None:
    """A line of the table."""
    middle, spread = statistics.median(taken), f"{min(taken) * 1e3:.1f} - {max(taken) * 1e3:.1f}"
    print(
        f"{strategy:18}{planned * 1e3:9.1f}{middle * 1e3:10.1f}{middle / planned:7.2f}   {spread}", flush=True
    )


if __name__ == "__main__":
    main()
