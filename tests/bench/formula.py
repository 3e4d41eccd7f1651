"""The time of a guessed token by the formula beside what rings of cores take for it, on a virtual clock.

    python -m tests.bench.formula                 # 30 cases in rings, 6 on one device
    python -m tests.bench.formula --jitter 0.2    # links that take so much longer or shorter

A ring of cores (`partc/runtime/virtual`) runs the source's own rules, without a network or an engine: devices compute
for as long as they are told to. The source expects the answer with a part of its tokens right. Laps are measured
without guesses, `g` is the share of tokens that came true from one, and the formula is that of plans
(`partc/planner/model/drafted.py`).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partc.format.message_parts import Sampling
from partc.planner.model.drafted import Pace, beside
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.virtual.network import Conditions
from partc.runtime.virtual.ring import Ring
from tests.runtime.roles import ONE, VOCABULARY, Programs, both, null_engine, roles_of

TOKENS = 300
STAGE_S = 0.02
"""Computing of a device of speed 1."""
RINGS = {
    "2 equal": (1.0, 1.0),
    "3 equal": (1.0, 1.0, 1.0),
    "5 equal": (1.0, 1.0, 1.0, 1.0, 1.0),
    "3 unequal": (1.0, 0.5, 1.5),
    "4 unequal": (0.5, 2.0, 1.0, 1.0),
}
"""Name → seconds of each device, in stages."""
DELAYS_S = (0.001, 0.005, 0.025)
SHARES = (0.6, 1.0)
"""Shares of drafts that are right."""
PRICES = {"cheap rows": ((2, 1100), (4, 1300), (8, 1700)), "dear rows": ((2, 1400), (4, 2200), (8, 3800))}
"""Name → steps of several tokens and what they cost, in thousandths; each row as much."""


@dataclass(frozen=True)
class Case:
    """A ring, and how much of an answer is guessed right."""

    name: str
    seconds: tuple[float, ...]
    """Seconds of each device, one for each stage."""
    delay_s: float
    share: float
    step_tokens: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Found:
    """The time of a ring, and the one that the formula gives."""

    case: Case
    g: float
    """Share of tokens that came true from a guess."""
    lap_s: float
    """Seconds per token without guesses."""
    token_s: float
    formula_s: float

    @property
    def off(self) -> float:
        """How much longer it took than by the formula, as a part of that."""
        return self.token_s / self.formula_s - 1.0


def cases() -> Iterator[Case]:
    """30 in rings, then those of one device."""
    for name, seconds in RINGS.items():
        for delay_s in DELAYS_S:
            for share in SHARES:
                yield Case(name, seconds, delay_s, share)
    for name, step_tokens in PRICES.items():
        for share in (0.6, 0.9, 1.0):
            yield Case(name, (1.0,), 0.0, share, step_tokens)


def measured(case: Case, jitter: float = 0.0, tokens: int = TOKENS) -> Found:
    """A request with guesses after the same without."""
    right, plain_s, _ = _play(case, (), tokens, jitter, drafts=False)
    coin = random.Random(2)
    expected = [token if coin.random() < case.share else coin.randrange(VOCABULARY) for token in right]
    found, guessed_s, accepted = _play(case, expected, tokens, jitter, drafts=True)
    assert found == right, "a token depends on guesses"
    lap_s, g = plain_s / tokens, accepted / tokens
    return Found(case, g, lap_s, guessed_s / tokens, _formula_s(case, lap_s, g))


def _formula_s(case: Case, lap_s: float, g: float) -> float:
    if len(case.seconds) > 1:
        return Pace(lap_s, STAGE_S * max(case.seconds)).token_s(g)
    return lap_s * min(beside(g, rows, cost / 1000) for rows, cost in case.step_tokens)


def _play(
    case: Case, expected: Sequence[int], tokens: int, jitter: float, *, drafts: bool
) -> tuple[list[int], float, int]:
    """The tokens of a request, its seconds, and its guesses that were right."""
    roles = roles_of(
        _programs(case), max_sequence=tokens + 8, max_requests=2, prompt_chunk=3, step_tokens=case.step_tokens
    )
    row = (case.step_tokens[0][1] / 1000 - 1.0) if case.step_tokens else 0.0
    of_device = dict(zip(roles, case.seconds, strict=True))

    def seconds(device: str, work: Compute | Draw) -> float:
        return (
            STAGE_S * of_device[device] * (1 + row * len(work.others)) if isinstance(work, Compute) else 0.0
        )

    ring = Ring(
        roles,
        lambda device: null_engine(roles[device]),
        seconds=seconds,
        conditions=Conditions(case.delay_s, jitter * case.delay_s),
    )
    ring.run(1.0)
    began = ring.clock.now
    answer = ring.client.submit(
        [(5, 6, 7, 8)],
        tokens,
        ignore_eos=True,
        sampling=Sampling(temperature=0.7, seed=1),
        drafts=drafts,
        expected=expected,
    )
    ring.run(10_000.0, until=lambda: answer.done)
    assert answer.result is not None, answer.problem
    return list(answer.result.tokens[0]), ring.clock.now - began, answer.result.accepted


def _programs(case: Case) -> Programs:
    """A sub-module on each device, that is told the position of its rows, so that guesses can be taken back."""
    names = "abcdefgh"[: len(case.seconds)]
    if len(names) == 1:
        return ONE
    found = {}
    for at, name in enumerate(names):
        read, made = ("input_ids" if at == 0 else f"h{at - 1}"), f"h{at}"
        lines = [f"recv {read} from {names[at - 1]}"] if at else []
        if at + 1 < len(names):
            lines += [f"run p{at} (position, {read}) -> ({made})", f"send {made} to {names[at + 1]}"]
        else:
            lines += [
                f"run p{at} (position, {read}) -> (logits)",
                "sample logits -> token",
                "send token to a",
            ]
        lines += [] if at else [f"recv token from {names[-1]}", "emit token"]
        found[name] = both("\n".join(lines))
    return found


def main() -> None:
    """Measure and print all cases."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.formula",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jitter", type=float, default=0.0, metavar="PART", help="of delays (default: none)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of an answer (default: %(default)s)")
    options = parser.parse_args()
    print("ring            hop  right     g       lap     token   formula    off")
    for case in cases():
        found = measured(case, options.jitter, options.tokens)
        times = "  ".join(
            f"{1e3 * seconds:5.1f} ms" for seconds in (found.lap_s, found.token_s, found.formula_s)
        )
        print(
            f"{case.name:12} {1e3 * case.delay_s:3.0f} ms  {case.share:5.0%}  {found.g:4.2f}  {times}",
            f" {found.off:+5.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
