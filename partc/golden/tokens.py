"""Greedy answers, and the first token in which two of them differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from partc.api.ring import Ring
from partc.differences.change import Change, shown
from partc.golden.config import Case

LIKELY = 5
"""The most likely tokens that are looked at, where two answers part."""
_DIGITS = 2
Answer = Mapping[str, Any]
"""`{prompt, tokens, text, logprobs, likely}`; `likely` of every token is in memory alone."""


def answers(case: Case, ring: Ring) -> list[dict[str, Any]]:
    """The greedy answer to every prompt of a case, with the logarithm of the probability of each token."""
    found = []
    prompts = [prompt if isinstance(prompt, str) else list(prompt) for prompt in case.prompts]
    for prompt in prompts:
        made = ring.generate(prompt, case.most_tokens(ring.build.model.max_sequence), likely=LIKELY)
        found.append(
            {
                "prompt": prompt,
                "ids": made.prompt,
                "tokens": made.tokens,
                "text": made.text,
                "logprobs": [round(likely[0].logprob, _DIGITS) + 0.0 for likely in made.likely],
                "likely": [{each.token: each.logprob for each in likely} for likely in made.likely],
            }
        )
    return found


def kept(found: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers as they are written."""
    return [{key: value for key, value in answer.items() if key != "likely"} for answer in found]


def compare_answers(before: Sequence[Answer], after: Sequence[Answer]) -> Iterator[Change]:
    """The first token of each answer that is another one, and how likely both were."""
    known = {repr(answer["prompt"]): answer for answer in before}
    for answer in after:
        name = f"answer to {shown(answer['prompt'])!r}"
        earlier = known.pop(repr(answer["prompt"]), None)
        if earlier is None:
            yield Change("tokens", "prompt added", name, None, shown(answer["text"] or answer["tokens"]))
        elif earlier["ids"] != answer["ids"]:
            yield Change("tokens", "prompt read otherwise", name, shown(earlier["ids"]), shown(answer["ids"]))
        elif earlier["tokens"] != answer["tokens"]:
            yield _first(name, earlier, answer)
    for prompt in known:
        yield Change("tokens", "prompt removed", f"answer to {prompt}", None, None)


def _first(name: str, before: Answer, after: Answer) -> Change:
    pairs = zip(before["tokens"], after["tokens"], strict=False)
    place = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        old_size, new_size = (f"{len(answer['tokens'])} tokens" for answer in (before, after))
        return Change("tokens", "answer ends elsewhere", name, old_size, new_size)
    old, new = before["tokens"][place], after["tokens"][place]
    then, now = before["logprobs"][place], after["logprobs"][place]
    likely = after.get("likely")
    still = likely[place].get(old) if likely else None
    beside = "" if still is None or not math.isfinite(still) else f"; {old} has {still:.2f} now"
    return Change(
        "tokens",
        "token differs",
        f"{name}, token {place + 1} of {len(before['tokens'])}",
        f"{old} (logprob {then:.2f})",
        f"{new} (logprob {now:.2f}{beside})",
    )
