"""Trials of rings of real processes that are disturbed: tokens as without, and the time until the next one.

    python -m tests.living.trials kill --model storyteller --trials 100 --seed 1
    python -m tests.living.trials kill --model parts --requests 2 --trials 50
    python -m tests.living.trials lose --devices 4 --trials 25
    python -m tests.living.trials cut --trials 50 --json
    python -m tests.living.trials kill --model grouped --seed 1 --only 17

Each trial sends its requests, disturbs a random device but the source at a random moment, and holds the tokens against
those of the same requests undisturbed. What is random follows from the seed and the number of the trial, `--only`
repeats one; the moments of processes are never quite the same again. The exit code is 1 where a trial went wrong.

`recovery` is the time from the disturbance to the end of the longest wait for a token that follows. A trial that may
end with an error must do so within patience, `--rejoin` and 2 s of the disturbance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median

from tests.living.episodes import EPISODES
from tests.living.field import Field, Outcome, Trial
from tests.living.models import SUBJECTS, Subject, build

PROMPTS = 6
"""Different requests of all trials."""
_IN_PROMPT = 0.25
"""The part of the disturbances that come while the prompt is computed."""


def drawn(seed: int, number: int, subject: Subject, victims: Sequence[str], requests: int) -> Trial:
    """The trial of a number."""
    rng = Random(f"{seed}/{number}")
    at = 0 if rng.random() < _IN_PROMPT else rng.randint(1, subject.tokens * 3 // 4)
    delay_s = rng.uniform(0.0, 0.003 if at else 0.03)
    seeds = tuple(rng.randrange(PROMPTS) for _ in range(requests))
    return Trial(number, rng.choice(victims), at, delay_s, seeds)


def report(outcomes: Sequence[Outcome]) -> str:
    """The figures of all trials, and each that went wrong."""
    times = sorted(outcome.recovery_s for outcome in outcomes if outcome.recovery_s is not None)
    verdicts = [outcome.verdict for outcome in outcomes]
    lines = [f"{verdicts.count(verdict):5} {verdict}" for verdict in sorted(set(verdicts))]
    if times:
        lines.append(f"recovery: median {median(times):.2f} s, worst {times[-1]:.2f} s")
        lines.append(f"a token after it: {1e3 * median(o.token_s for o in outcomes):.2f} ms")
    wrong = (outcome for outcome in outcomes if not outcome.is_fine)
    lines += [f"--only {o.number}: {o.victim} after token {o.at}: {o.verdict}: {o.told}" for o in wrong]
    return "\n".join(lines)


def main() -> int:
    """Make the trials that are asked for."""
    options = _parser().parse_args()
    subject, episode = SUBJECTS[options.model], EPISODES[options.episode]
    bundle = build(options.folder, options.model, options.devices, episode.survive)
    victims = sorted(path.name for path in (bundle / "devices").iterdir())[1:]
    numbers = [options.only] if options.only is not None else range(options.trials)
    field, outcomes = Field(bundle, subject, episode), []
    try:
        for number in numbers:
            outcomes.append(field.trial(drawn(options.seed, number, subject, victims, options.requests)))
            last = outcomes[-1]
            if not last.is_fine or options.verbose:
                print(f"{asdict(last)}", file=sys.stderr, flush=True)
    finally:
        field.close()
    told = [asdict(outcome) for outcome in outcomes]
    print(json.dumps(told, indent=1) if options.json else report(outcomes))
    return 0 if all(outcome.is_fine for outcome in outcomes) else 1


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
    parser.add_argument("--requests", type=int, default=1, help="in flight at once")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one trial alone")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/living"), help="for builds")
    parser.add_argument("--verbose", action="store_true", help="tell of each trial")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
