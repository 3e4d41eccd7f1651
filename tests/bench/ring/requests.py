"""The requests to rings, and the figures in the timings of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result, Tokens

Seconds = npt.NDArray[np.float64]

CONTEXT, PROMPT = 128, 512
"""Tokens around which decode is timed; tokens of the prompt that is timed."""


def submit(
    client: Client, prompt: int, tokens: int, seed: int, on_token: Callable[[Tokens], None] | None = None
) -> Request:
    """So many tokens behind a random prompt of so many."""
    return client.submit(ids(prompt, seed), max_new_tokens=tokens, ignore_eos=True, on_token=on_token)


def submit_around(client: Client, tokens: int, seed: int, **options: Any) -> Request:
    """So many tokens around `CONTEXT`."""
    return submit(client, CONTEXT - tokens // 2, tokens, seed, **options)


def ids(length: int, seed: int) -> list[int]:
    """A random prompt."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, 32000, length)]


def token_times(result: Result, ring: Sequence[str]) -> tuple[Seconds, Seconds]:
    """From each token to the next, and how much of that was computing, on all devices together; decode alone.

    A step begins on the source when the token before it is there.
    """
    whole = np.diff(_column(result, ring[0], "started_s")[1:])
    compute = sum(_column(result, name, "compute_s")[1 : len(whole) + 1] for name in ring)
    return whole, np.asarray(compute)


def hop_times(result: Result, ring: Sequence[str]) -> list[float]:
    """From one device's `send` to the next one's `run`, of every hop of every token; seconds.

    All devices read one clock. A step begins on a device when its message has come, and is sent on when it is computed.
    """
    starts = {name: _column(result, name, "started_s")[2:] for name in ring}
    busy = {
        name: (_column(result, name, "compute_s") + _column(result, name, "queue_s"))[2:] for name in ring
    }
    there = [starts[b] - starts[a] - busy[a] for a, b in pairwise(ring)]
    return [float(seconds) for hop in there for seconds in hop]


def pair_time(results: Sequence[Result], source: str) -> float:
    """Seconds a token while all of the requests are in flight, between their first tokens and the first last one."""
    starts = [_column(result, source, "started_s")[1:] for result in results]
    begin, end = max(times[0] for times in starts), min(times[-1] for times in starts)
    count = sum(int(np.count_nonzero((begin < times) & (times <= end))) for times in starts)
    return float(end - begin) / count if count else float("nan")


def _column(result: Result, device: str, name: str) -> Seconds:
    return result.timings[device].column(name)
