"""The tokens of a prompt: what a model takes, and how much room they leave for an answer."""

from __future__ import annotations

from collections.abc import Sequence

from partc.format.role import Role
from partc.format.tasks import SOURCE
from partc.serve.errors import ApiError


def room_behind(role: Role, prompt: Sequence[int], most_tokens: int | None, param: str) -> int:
    """New tokens at most; a prompt that leaves no room is refused, one that leaves less than asked is not.

    Args:
        role: of the ring's source.
        prompt: its tokens.
        most_tokens: so many are asked for; None: as many as there are.
        param: the field of the prompt.

    Raises:
        ApiError: the model does not take these tokens, or they are too many.
    """
    _check_tokens(role, prompt, param)
    most = role.dims.get(SOURCE)
    if most is not None and len(prompt) > most:
        message = f"the prompt has {len(prompt)} tokens, at most {most} can be read"
        raise ApiError(message, param=param, code="context_length_exceeded")
    longest = role.model.max_sequence
    room = longest - len(role.model.before_answer(prompt))
    if room < 1:
        message = f"the prompt has {len(prompt)} tokens; prompt and answer have at most {longest} together"
        raise ApiError(message, param=param, code="context_length_exceeded")
    return room if most_tokens is None else min(room, most_tokens)


def check_text(role: Role, tokens: Sequence[int], param: str) -> None:
    """Refuse a text that is no input of a model without answers.

    Raises:
        ApiError: the model does not take these tokens, or they are too many.
    """
    _check_tokens(role, tokens, param)
    if len(tokens) > (longest := role.model.max_sequence):
        message = f"a text has {len(tokens)} tokens, at most {longest} are taken"
        raise ApiError(message, param=param, code="context_length_exceeded")


def _check_tokens(role: Role, tokens: Sequence[int], param: str) -> None:
    if not tokens:
        raise ApiError("the prompt is empty", param=param)
    vocabulary = role.model.vocab_size
    if min(tokens) < 0:
        raise ApiError("a token is below 0: token ids count from 0", param=param)
    if vocabulary is not None and max(tokens) >= vocabulary:
        raise ApiError(f"a token is none of the model's, 0 to {vocabulary - 1}", param=param)
