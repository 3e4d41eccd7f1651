"""The figures of all trials, in lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from tests.living.field import Outcome
from tests.living.memory import MemoryUse


def report(outcomes: Sequence[Outcome], memory: Sequence[MemoryUse] = ()) -> str:
    """The figures of all trials, and each that went wrong."""
    verdicts = [outcome.verdict for outcome in outcomes]
    lines = [f"{verdicts.count(verdict):5} {verdict}" for verdict in sorted(set(verdicts))]
    lines += [
        *_mixtures(outcomes),
        *_carried(outcomes),
        *_recovery(outcomes),
        *_losses(outcomes),
        *_moves(outcomes),
        *_memory(memory),
    ]
    wrong = (outcome for outcome in outcomes if not outcome.is_fine)
    lines += [f"--only {o.number}: {o.victim} after token {o.at}: {o.verdict}: {o.told}" for o in wrong]
    return "\n".join(lines)


def _mixtures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Trials by the runners of the ring, where those differ."""
    found = Counter(outcome.native for outcome in outcomes)
    fine = Counter(outcome.native for outcome in outcomes if outcome.is_fine)
    for native in found if len(found) > 1 else ():
        runners = f"native: {', '.join(native)}" if native else "all in Python"
        yield f"{runners}: {fine[native]} of {found[native]} trials as they must be"


def _carried(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The control: a trial shows nothing where no request in flight has seen the disturbance."""
    found = [outcome for outcome in outcomes if outcome.requests]
    if found:
        carried, every = sum(outcome.carried for outcome in found), sum(outcome.requests for outcome in found)
        hit = sum(outcome.carried > 0 for outcome in found)
        trials = f"in {hit} of {len(found)} trials"
        yield f"{carried} of {every} requests, {trials}, were in flight when a placement came into force"


def _recovery(outcomes: Sequence[Outcome]) -> Iterator[str]:
    times = sorted(outcome.recovery_s for outcome in outcomes if outcome.recovery_s is not None)
    if times:
        yield f"recovery: median {median(times):.2f} s, worst {times[-1]:.2f} s"
        yield f"a token after it: {1e3 * median(o.token_s for o in outcomes if o.recovery_s is not None):.2f} ms"


def _losses(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The time of a token after the loss of each device, as planned and as measured."""
    for victim in sorted({outcome.victim for outcome in outcomes}):
        hit = [outcome for outcome in outcomes if outcome.victim == victim]
        pairs = [(o.promised_s, o.token_s) for o in hit if o.promised_s and o.token_s]
        if not pairs:
            yield f"{victim}: {len(hit)} trials"
            continue
        promised, measured = (median(column) for column in zip(*pairs, strict=True))
        ratio = median(promised / measured for promised, measured in pairs)
        yield (
            f"{victim}: {len(hit)} trials; {1e3 * promised:.2f} ms per token predicted, "
            f"{1e3 * measured:.2f} ms measured: predicted / measured {ratio:.2f}"
        )


def _moves(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found = [stall for outcome in outcomes for stall in outcome.stalls]
    if not found:
        return
    gaps = sorted(1e3 * stall.gap_s for stall in found)
    usual = sorted(stall.gap_s / stall.usual_s for stall in found)
    stopped = sorted(1e3 * stall.stopped_s for stall in found)
    steps = sorted(stall.steps for stall in found)
    yield f"{len(found)} moves of requests in flight, in {len(outcomes)} trials"
    yield f"from step to step around a move: median {median(gaps):.1f} ms, worst {gaps[-1]:.1f} ms"
    yield f"as parts of the usual time: median {median(usual):.1f}, worst {usual[-1]:.1f}"
    yield f"requests stood still: median {median(stopped):.1f} ms, worst {stopped[-1]:.1f} ms"
    yield f"steps computed again: median {median(steps):g}, worst {steps[-1]}"


def _memory(uses: Sequence[MemoryUse]) -> Iterator[str]:
    for use in uses:
        kept = "kept" if use.is_kept else "MORE THAN PLANNED"
        yield f"memory of {use.device}: {use.planned / 1e6:.1f} MB planned, {use.peak / 1e6:.1f} MB at most: {kept}"
