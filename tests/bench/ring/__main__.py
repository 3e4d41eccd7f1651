"""What cutting costs: rings of 2 and 3 local processes of one thread each beside the uncut model on one thread.

    python -m tests.bench.ring --folder /tmp/ring [--model 110M] [--checkpoint DIR] [--quantize int4] [--json]

A machine may change its speed by a fifth for seconds at a time. So all rings are alive at once and take short turns:
a few tokens of one ring, then of the next, many times over; times of single tokens are pooled, and their median and
their 20th percentile (what a token takes while the machine is fast) held against those of the uncut model. Links are
encrypted. Measured are

- decode around context 128, one request: from token to token; computing (all devices together) and what is beyond it;
  CPU time of all runners; a hop, from the sending device's `send` to the receiving device's `run`;
- two requests in flight: tokens per second, over those of one, beside what two processes read from memory over what
  one reads;
- a prompt of 512 tokens: its speed over that of the uncut model, beside what as many devices would make of as many
  equal parts if parts and messages cost nothing. How the work of a prompt and that of a token are in
  balance are two things (the head is read for every token), so `prompt` is a ring of two planned for long prompts;
- resident memory of the runners, at the peak of starting and at the end, beside weights and caches of their shares:
  before all else, one ring at a time.

A round takes about 8 s at 110M in int4, and 70 s at 1.1B. On a machine with fewer idle cores than processes, only the
CPU times mean something. Builds stay in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

from tests.bench.llamas import SHAPES
from tests.bench.random_models import MODELS
from tests.bench.ring.builds import RINGS, build, ideal_speed
from tests.bench.ring.figures import summary, table
from tests.bench.ring.memory import memory_alone
from tests.bench.ring.turns import take_turns


def main() -> None:
    """Make what is missing, measure, print."""
    options = _parser().parse_args()
    names = options.rings.split(",")
    checkpoint = (options.checkpoint or options.folder / options.model / "checkpoint").resolve()
    if not (checkpoint / "model.safetensors").exists():
        checkpoint.mkdir(parents=True)
        MODELS[options.model].make_checkpoint(checkpoint.parent)
    place = options.folder / options.model / options.target / options.quantize
    builds = {
        name: build(place, name, checkpoint, options.quantize, options.target, options.fresh)
        for name in names
    }
    memory = {name: memory_alone(bundle) for name, bundle in builds.items()}
    turns = take_turns(builds, options.model, options.rounds)
    about = {
        "model": options.model, "target": options.target, "quantize": options.quantize, "rounds": options.rounds,
        "cores": os.cpu_count(), "load": turns.load, "reading_gain": float(np.median(turns.reading_gain)),
    }  # fmt: skip
    ideals = {name: ideal_speed(bundle) for name, bundle in builds.items()}
    report = summary(turns.rings, memory, ideals, about)
    print(json.dumps(report, indent=1) if options.json else table(report))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.ring", description="Rings of local processes beside the uncut model."
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", choices=SHAPES, default="110M")
    parser.add_argument("--checkpoint", type=Path, help="of that shape; made where there is none")
    parser.add_argument("--quantize", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--target", choices=("tvm", "ort"), default="tvm")
    parser.add_argument(
        "--rings", default=",".join(RINGS), help="others are held against the first (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--fresh", action="store_true", help="compile again")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    main()
