"""Requests with guessed tokens beside the same without: every token must be the same, whatever was guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from partc.errors import RunError
from partc.format.message_parts import Sampling
from partc.format.role import Role
from partc.pipeline.contract import Progress
from partc.runtime.client.client import Client
from partc.runtime.client.results import Result
from partc.verifier.compare import same
from partc.verifier.inputs import Answer, Requests, asked_by, prompts_for
from partc.verifier.report import Guessed

_WRONG_EVERY = 3
"""Of a draft with mistakes each so-manieth token is another one."""
_DRAWN = Sampling(temperature=0.8, seed=7)


def _with_mistakes(answer: Sequence[int], vocabulary: int) -> Sequence[int]:
    return [
        (token + 1) % vocabulary if at % _WRONG_EVERY == _WRONG_EVERY - 1 else token
        for at, token in enumerate(answer)
    ]


DRAFTS: Mapping[str, Callable[[Sequence[int], int], Sequence[int]]] = {
    "what came before": lambda answer, vocabulary: (),
    "the answer, a third wrong": _with_mistakes,
    "the answer": lambda answer, vocabulary: answer,
}
"""What is guessed from → the tokens that the source is told to expect, of the answer and the size of the vocabulary."""


def compare_drafts(client: Client, asked: Requests, progress: Progress) -> list[Guessed]:
    """Every prompt, its tokens drawn, with each kind of drafts beside the same without.

    Raises:
        RunError: the ring guesses no tokens, or failed.
    """
    check_guesses(client.role)
    prompts = prompts_for(asked, client.role)
    found: list[Guessed] = []
    for number, prompt in enumerate(prompts):
        progress("compare drafts", number, len(prompts))
        count = asked.count(client.role.model)
        options = {**asked_by(prompt), "max_new_tokens": count, "ignore_eos": True, "sampling": _DRAWN}
        plain = client.submit(**options, drafts=False).result()
        found += [_compared(client, prompt, plain, name, options) for name in DRAFTS]
    progress("compare drafts", len(prompts), len(prompts))
    return found


def check_guesses(role: Role) -> None:
    """Refuse to compare where no tokens are guessed.

    Raises:
        RunError: with the reason.
    """
    if role.guesses:
        return
    if len(role.ring) < 2 and role.model.drafts:
        reason = "one device alone has no time to fill, and its engine computes one token at a time"
        hint = "compile with `target: tvm`, or for several devices"
    elif not role.model.generates:
        reason, hint = "the model does not generate", "leave out --drafts"
    else:
        reason, hint = "the build guesses none", "partc watch tells why"
    raise RunError(f"no tokens are guessed: {reason}", where="--drafts", hint=hint)


def _compared(client: Client, prompt: Any, plain: Result, drafts: str, options: Mapping[str, Any]) -> Guessed:
    right = list(plain.tokens[0])
    expected = DRAFTS[drafts](right, client.role.model.vocab_size or max(right) + 2)
    result = client.submit(**options, expected=expected).result()
    what = Answer(prompt if isinstance(prompt, Mapping) else result.prompts[0], result).what
    return Guessed(
        what=what,
        drafts=drafts,
        tokens=len(right),
        identical=same(list(result.tokens[0]), right),
        drafted=result.drafted,
        accepted=result.accepted,
        plain_s=plain.elapsed_s,
        drafted_s=result.elapsed_s,
    )
