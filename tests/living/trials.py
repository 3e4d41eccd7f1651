"""Trials of rings of real processes that are disturbed: tokens as without, and the time until the next one.

    python -m tests.living.trials kill --model storyteller --trials 100 --seed 1
    python -m tests.living.trials kill --model parts --requests 2 --trials 50
    python -m tests.living.trials lose --measured --devices 4 --trials 25
    python -m tests.living.trials move --trials 100 --memory
    python -m tests.living.trials cut --trials 50 --json
    python -m tests.living.trials kill --model grouped --seed 1 --only 17
    python -m tests.living.trials kill --requests 2 --trials 300 --mixed build/native/dev/partc-runner
    python -m tests.living.trials kill --trials 300 --guessed 0.8

Each trial sends its requests, disturbs a device but the source at a random moment, each device as often as the others,
and holds the tokens against those of the same requests undisturbed. What is random follows from the seed and the number
of the trial, `--only` repeats one; the moments of processes are never quite the same again. The exit code is 1 where a
trial went wrong.

`recovery` is the time from the disturbance to the end of the longest wait for a token that follows. A trial that may
end with an error must do so within patience, `--rejoin` and 2 s of the disturbance.

`--measured` plans with what a ring without that plan took in three runs: else the plan's times are those of devices on
paper. `--mixed` runs devices with Python's runner or with a native one, in every way in which a ring can have both, six
trials a ring; the tokens of all are those of the first. `--memory` holds the most memory of every runner against what
the plan says of the placements it went through.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from random import Random

from tests.living.episodes import EPISODES
from tests.living.field import Field, Trial
from tests.living.memory import idle, memory_uses
from tests.living.models import SUBJECTS, Subject, build
from tests.living.report import report

PROMPTS = 6
"""Different requests of all trials."""
_IN_PROMPT = 0.25
"""The part of the disturbances that come while the prompt is computed."""


_OF_A_RING = 6
"""Trials with the same runners, before the next mixture has its turn."""


def mixtures(devices: Sequence[str]) -> list[tuple[str, ...]]:
    """Every choice of devices that run a native runner; those with a source in Python and in C++ by turns."""
    source, *members = devices
    chosen = [some for count in range(len(members), -1, -1) for some in combinations(members, count)]
    return [(*head, *some) for some in chosen for head in ((), (source,))]


def drawn(seed: int, number: int, subject: Subject, victims: Sequence[str], requests: int) -> Trial:
    """The trial of a number."""
    rng = Random(f"{seed}/{number}")
    at = 0 if rng.random() < _IN_PROMPT else rng.randint(1, subject.tokens * 3 // 4)
    delay_s = rng.uniform(0.0, 0.003 if at else 0.03)
    seeds = tuple(rng.randrange(PROMPTS) for _ in range(requests))
    return Trial(number, victims[number % len(victims)], at, delay_s, seeds)


def main() -> int:
    """Make the trials that are asked for."""
    options = _parser().parse_args()
    subject, episode = SUBJECTS[options.model], EPISODES[options.episode]
    subject = replace(subject, tokens=options.tokens or subject.tokens)
    kind = {"measured": options.measured, "native": options.native}
    bundle = build(options.folder, options.model, options.devices, episode.survive, **kind)
    devices = sorted(path.name for path in (bundle / "devices").iterdir())
    victims, mixed = devices[1:], mixtures(devices) if options.mixed else [()]
    numbers = [options.only] if options.only is not None else range(options.trials)
    requests = options.requests or episode.requests
    field, outcomes = (
        Field(
            bundle,
            subject,
            episode,
            memory=options.memory,
            native=options.mixed,
            slowness=options.slowness,
            guessed=options.guessed,
        ),
        [],
    )
    base = idle() if options.memory else 0.0
    try:
        for number in numbers:
            trial = drawn(options.seed, number, subject, victims, requests)
            native = mixed[number // _OF_A_RING % len(mixed)]
            outcomes.append(field.trial(replace(trial, native=native)))
            last = outcomes[-1]
            if not last.is_fine or options.verbose:
                print(f"{asdict(last)}", file=sys.stderr, flush=True)
    finally:
        field.close()
    sizes = memory_uses(field.planned, field.peaks, base)
    told = {"trials": [asdict(outcome) for outcome in outcomes], "memory": [asdict(use) for use in sizes]}
    print(json.dumps(told, indent=1) if options.json else report(outcomes, sizes))
    return 0 if all(outcome.is_fine for outcome in outcomes) and all(use.is_kept for use in sizes) else 1


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {name:8} {episode.about}" for name, episode in EPISODES.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.living.trials",
        description="Disturb rings of real processes.",
        epilog=f"episodes:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("episode", choices=EPISODES)
    parser.add_argument("--model", choices=SUBJECTS, default="storyteller")
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--requests", type=int, help="at once; default: 1, with `balance` 24")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one trial alone")
    parser.add_argument("--measured", action="store_true", help="plan with measured times")
    parser.add_argument("--native", action="store_true", help="native runners, which `make native` has built")
    parser.add_argument("--mixed", type=Path, metavar="FILE", help="a native runner, for rings of both kinds")
    parser.add_argument(
        "--guessed",
        type=float,
        metavar="SHARE",
        help="tell the source what to expect, with so much of it right",
    )
    parser.add_argument("--memory", action="store_true", help="look at the memory of the runners")
    parser.add_argument(
        "--slowness", type=float, default=1.0, help="multiple of all patience; a busy machine: 10"
    )
    parser.add_argument("--tokens", type=int, help="new tokens of a request; default: as the model says")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/living"), help="for builds")
    parser.add_argument("--verbose", action="store_true", help="tell of each trial")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
