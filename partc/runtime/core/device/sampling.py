"""From logits to tokens: greedy, temperature, top-k, top-p.

Every draw is a pure function of (logits of the row, parameters, seed, row, token position): a counter-based
generator (Philox) is keyed by the last three, so the answer does not depend on what else runs on the device,
on how requests interleave, or on how often a step is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partc.format.dtypes import Array
from partc.format.message_parts import Sampling


def drawn(
    logits: npt.NDArray[np.float32],
    sampling: Sampling,
    positions: Sequence[int],
    others: Sequence[Sampling] = (),
) -> tuple[Array, ...]:
    """The results of a draw: the tokens and, where they are wanted, those that are likely, and how likely they are.

    With `others`, every row is the first one of a request of its own, and is drawn as that alone. Rows whose requests
    want fewer likely tokens than the one that wants most have zeros behind theirs.
    """
    if others:
        each = (sampling, *others)
        rows = [sample(logits[row : row + 1], own, positions[row:]) for row, own in enumerate(each)]
        wanted = [own.likely for own in each]
        drawn_tokens = np.concatenate(rows)
        return (
            (drawn_tokens, *_likely_of_some(logits, drawn_tokens, wanted)) if any(wanted) else (drawn_tokens,)
        )
    tokens = sample(logits, sampling, positions)
    return (tokens, *likely(logits, tokens, sampling.likely)) if sampling.likely else (tokens,)


def likely(
    logits: npt.NDArray[np.float32], tokens: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The drawn token of every row and the `count - 1` most likely ones, with the logarithms of their probabilities.

    Args:
        logits: (batch, vocabulary).
        tokens: (batch,) as drawn.
        count: 1 or more; no more than the vocabulary and one.

    Returns:
        ids (batch, count), and logarithms (batch, count): x - log sum exp, summed in float64 in the order of the
        vocabulary and rounded to float32, so that both runners have the same but for one unit in the last place.
    """
    wide = logits.astype(np.float64)
    top = wide.max(axis=1, keepdims=True)
    sums = np.cumsum(np.exp(wide - top), axis=1)[:, -1:]
    ids = tokens[:, None]
    if count > 1:
        ids = np.concatenate([ids, [by_likelihood(row)[: count - 1] for row in logits]], axis=1)
    told = np.take_along_axis(wide, ids, axis=1) - top - np.log(sums)
    return ids, told.astype(np.float32).astype(np.float64)


def _likely_of_some(
    logits: npt.NDArray[np.float32], tokens: npt.NDArray[np.int64], wanted: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The same as `likely`, for as many tokens of each row as are wanted there."""
    ids = np.zeros((len(wanted), max(wanted)), np.int64)
    told = np.zeros((len(wanted), max(wanted)), np.float64)
    for row, count in enumerate(wanted):
        if count:
            own = slice(row, row + 1)
            found, logarithms = likely(logits[own], tokens[own], count)
            ids[row, : found.shape[1]], told[row, : found.shape[1]] = found[0], logarithms[0]
    return ids, told


def sample(
    logits: npt.NDArray[np.float32], sampling: Sampling, positions: Sequence[int]
) -> npt.NDArray[np.int64]:
    """The next token of every row.

    Args:
        logits: (batch, vocabulary).
        sampling: how to choose.
        positions: for each row, the index in its sequence that the new token will have.

    Returns:
        (batch,) token ids. Equal logits fall to the lowest id.
    """
    if sampling.temperature == 0.0:
        greedy: npt.NDArray[np.int64] = logits.argmax(axis=-1).astype(np.int64, copy=False)
        return greedy
    rows = [_draw(row, sampling, index, positions[index]) for index, row in enumerate(logits)]
    return np.array(rows, dtype=np.int64)


def by_likelihood(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """(vocabulary,) the tokens of a row, from the most likely one on: equal ones by their id, NaN last.

    The same as a stable sort of the negated numbers, in a third of its time: numpy sorts 16 bits by their digits. O(n).
    """
    bits = (logits + np.float32(0.0)).view(np.uint32)  # -0 is 0
    keys = np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
    keys[np.isnan(logits)] = 0xFFFFFFFF
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    return order[np.argsort((keys >> 16).astype(np.uint16)[order], kind="stable")]


def _draw(logits: npt.NDArray[np.float32], sampling: Sampling, row: int, position: int) -> int:
    """The first kept token of a row whose running sum passes a draw; O(vocabulary)."""
    order = by_likelihood(logits)
    if sampling.top_k:
        order = order[: sampling.top_k]
    ordered = logits[order].astype(np.float64)
    # At next to no temperature all but the likeliest are infinitely far below it.
    with np.errstate(over="ignore"):
        weights = np.exp((ordered - ordered[0]) / sampling.temperature)
    sums = np.cumsum(weights)
    kept = int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1 if sampling.top_p < 1.0 else len(sums)
    sums = sums[: min(kept, len(sums))]
    index = int(np.searchsorted(sums, _uniform(sampling.seed, row, position) * sums[-1], side="right"))
    return int(order[min(index, len(sums) - 1)])


def _uniform(seed: int, row: int, position: int) -> float:
    """A number in [0, 1) that belongs to (seed, row, position)."""
    bits = np.random.Philox(
        key=np.array([seed, row], np.uint64), counter=np.array([0, 0, 0, position], np.uint64)
    )
    return float(np.random.Generator(bits).random())
