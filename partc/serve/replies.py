"""The shapes of answers and of the chunks of a stream, as clients of OpenAI's API read them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from partc.serve.answer import Answer, Finish, Piece, Told

Json = dict[str, Any]
DONE = "data: [DONE]\n\n"
KEEP_ALIVE = ": keep-alive\n\n"
"""A comment, which clients skip: a long prompt is no broken connection."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What all parts of one answer have in common."""

    is_chat: bool
    model: str
    created: int
    """Seconds since 1970."""
    fingerprint: str
    """The build that answers."""
    name: str = ""

    @classmethod
    def fresh(cls, is_chat: bool, model: str, created: int, fingerprint: str) -> Shape:
        """The shape of a new answer, with an id of its own."""
        prefix = "chatcmpl" if is_chat else "cmpl"
        return cls(is_chat, model, created, fingerprint, f"{prefix}-{secrets.token_hex(12)}")

    def whole(self, answers: Sequence[Answer], prompt_tokens: int) -> Json:
        """An answer that is not streamed."""
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        usage = usage_of(prompt_tokens, answers)
        return {
            **self._base("chat.completion" if self.is_chat else "text_completion"),
            "choices": choices,
            **usage,
        }

    def first(self, index: int) -> Json | None:
        """The first chunk of a choice, with the role; completions have none."""
        if not self.is_chat:
            return None
        return self._chunk([_delta(index, {"role": "assistant", "content": ""}, None)])

    def piece(self, index: int, piece: Piece) -> Json:
        """A chunk with text."""
        told = list(piece.told)
        if not self.is_chat:
            return self._chunk([_text(index, piece.text, None, told)])
        return self._chunk([_delta(index, {"content": piece.text}, None, told)])

    def last(self, index: int, finish: Finish) -> Json:
        """The last chunk of a choice."""
        return self._chunk([_delta(index, {}, finish) if self.is_chat else _text(index, "", finish)])

    def usage(self, prompt_tokens: int, answers: Sequence[Answer]) -> Json:
        """The chunk that counts, which has no choices."""
        return {**self._chunk([]), **usage_of(prompt_tokens, answers)}

    def _choice(self, index: int, answer: Answer) -> Json:
        text, finish = "".join(answer.text), answer.finish
        if not self.is_chat:
            return _text(index, text, finish, answer.probabilities)
        message = {"role": "assistant", "content": text, "refusal": None}
        logprobs = _chat_logprobs(answer.probabilities)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _chunk(self, choices: list[Json]) -> Json:
        return {
            **self._base("chat.completion.chunk" if self.is_chat else "text_completion"),
            "choices": choices,
        }

    def _base(self, kind: str) -> Json:
        return {
            "id": self.name,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def usage_of(prompt_tokens: int, answers: Sequence[Answer]) -> Json:
    """The number of tokens."""
    new, reused = sum(answer.tokens for answer in answers), sum(answer.reused for answer in answers)
    guessed = [answer.guessed for answer in answers if answer.guessed is not None]
    predicted = {
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(right for right, _ in guessed),
            "rejected_prediction_tokens": sum(wrong for _, wrong in guessed),
        }
    }
    return {
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": new,
            "total_tokens": prompt_tokens + new,
            "prompt_tokens_details": {"cached_tokens": min(prompt_tokens, reused)},
            **(predicted if guessed else {}),
        }
    }


def event(data: Json) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def model_json(name: str, created: int, max_sequence: int, *, has_template: bool, embeds: bool) -> Json:
    """An entry of `/v1/models`; the last three are beyond OpenAI's API."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "partc",
        "max_model_len": max_sequence,
        "chat": has_template,
        "embeds": embeds,
    }


def _delta(index: int, delta: Json, finish: Finish | None, told: Sequence[Told] = ()) -> Json:
    return {"index": index, "delta": delta, "logprobs": _chat_logprobs(told), "finish_reason": finish}


def _text(index: int, text: str, finish: Finish | None, told: Sequence[Told] = ()) -> Json:
    return {"index": index, "text": text, "logprobs": _text_logprobs(told), "finish_reason": finish}


def _chat_logprobs(told: Sequence[Told]) -> Json | None:
    """The probabilities of a conversation's tokens; null where none are told."""
    if not told:
        return None
    content = [
        {
            **_entry(token.text, token.logprob, is_whole=token.is_whole),
            "top_logprobs": [_entry(text, logprob) for text, logprob in token.alternatives],
        }
        for token in told
    ]
    return {"content": content, "refusal": None}


def _entry(text: str, logprob: float, *, is_whole: bool = True) -> Json:
    """A token; without bytes where its text is only a part of a character."""
    whole = is_whole and "\ufffd" not in text
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()) if whole else None}


def _text_logprobs(told: Sequence[Told]) -> Json | None:
    """The probabilities of a completion's tokens; null where none are told."""
    if not told:
        return None
    return {
        "tokens": [token.text for token in told],
        "token_logprobs": [token.logprob for token in told],
        "top_logprobs": [{**dict(token.alternatives), token.text: token.logprob} for token in told],
        "text_offset": [token.begin for token in told],
    }
