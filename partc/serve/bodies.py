"""Bodies of requests, checked: what is asked for, or an error that names the field.

A field that this server does not have is refused unless its value changes nothing (`partc.serve.fields`); a field that
nobody knows is refused as well. So an answer is always what was asked for.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from partc.format.message_parts import Sampling
from partc.serve import fields
from partc.serve.errors import ApiError, unsupported
from partc.serve.fields import Absent

MOST_CHOICES = 16
MOST_STOPS = 16
MOST_ALTERNATIVES = 20
MOST_STOP_CHARACTERS = 1000
COMPLETION_TOKENS = 16
"""New tokens of a completion that does not say how many: OpenAI's default."""
_MOST = 2**63 - 1
"""The largest number that a field may be."""

Positive = Annotated[int, Meta(ge=1)]
Texts = str | list[str | int | list[int]]
"""A text, several, the token ids of one, or of several."""
BodyKind = TypeVar("BodyKind", "ChatBody", "CompletionBody", "EmbeddingBody", "MoveBody")


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: Literal[False] | None = None
    """Of other servers, whose clients send it."""


class TextPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a prediction."""

    text: str
    type: Literal["text"] = "text"


class Prediction(Struct, frozen=True, forbid_unknown_fields=True):
    """`prediction`."""

    content: str | list[TextPart]
    type: Literal["content"] = "content"

    @property
    def text(self) -> str:
        """The text that the answer may look like."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both kinds of completions have in common."""

    model: str | None = None
    """It may be left out: a server has one."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    """-1: as many as there is room for; beyond OpenAI's API."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=_MOST)] | None = None
    """Beyond OpenAI's API; 0 and -1 are all tokens."""
    seed: Annotated[int, Meta(ge=-_MOST - 1, le=_MOST)] | None = None
    stop: str | list[str] | None = None
    prediction: Prediction | None = None
    """What the answer may look like; it comes sooner where it does, and is the same where it does not."""
    drafts: bool | None = None
    """Beyond OpenAI's API: false guesses no tokens, which changes none."""
    deterministic: bool | None = None
    """Beyond OpenAI's API: no use of rows of earlier requests, which may let near ties fall otherwise."""

    @property
    def alternatives(self) -> int | None:
        """Likely tokens that are told beside each token, with the probabilities of all; None: no probabilities."""
        return None

    @property
    def choices(self) -> int:
        """Answers that are wanted."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk that counts tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer.

        Raises:
            ApiError: too many, too long, or an empty one.
        """
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(given) > MOST_STOPS:
            raise ApiError(f"{len(given)} stop texts, at most {MOST_STOPS}", param="stop")
        if any(not 0 < len(text) <= MOST_STOP_CHARACTERS for text in given):
            raise ApiError(f"a stop text has 1 to {MOST_STOP_CHARACTERS} characters", param="stop")
        return tuple(given)

    def sampling(self, default_temperature: float) -> Sampling:
        """The choice of tokens; without a seed, another one each time."""
        seed = secrets.randbits(63) if self.seed is None else self.seed % 2**64
        return Sampling(
            temperature=default_temperature if self.temperature is None else self.temperature,
            top_k=max(self.top_k or 0, 0),
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=seed,
            likely=0 if self.alternatives is None else self.alternatives + 1,
        )


class ChatBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Positive | None = None
    tools: list[dict[str, Any]] | None = None
    """Given to the model's template."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the model's template; beyond OpenAI's API."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None

    @property
    def alternatives(self) -> int | None:
        """See `Body`."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def most_tokens(self) -> int | None:
        """New tokens at most; None: as many as there is room for."""
        bounds = [most for most in (self.max_completion_tokens, self.max_tokens) if most not in (None, -1)]
        return min(bounds, default=None)


class CompletionBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: Texts
    logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None

    @property
    def alternatives(self) -> int | None:
        """See `Body`."""
        return self.logprobs

    @property
    def most_tokens(self) -> int | None:
        """New tokens at most; None: as many as there is room for."""
        return None if self.max_tokens == -1 else self.max_tokens or COMPLETION_TOKENS


class EmbeddingBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/embeddings`."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None


class MoveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /ring/move`."""

    ring: str
    """Its name."""
    submodules: str
    """Numbers of the plan, `8-11`, or layers of the model, `layers 4-5`."""
    to: str
    """The device that is to compute them."""
    apply: bool = False
    """Whether it is made; else what it would change is said."""


def texts_of(given: Texts) -> list[str]:
    """The texts of a field; empty where it holds token ids."""
    items = [given] if isinstance(given, str) else given
    return [item for item in items if isinstance(item, str)]


def token_ids_of(given: Texts, param: str) -> list[list[int]]:
    """The token ids of a field, one list a text; empty where it holds texts.

    Raises:
        ApiError: texts and token ids.
    """
    if isinstance(given, str):
        return []
    alone = [item for item in given if isinstance(item, int)]
    lists = [item for item in given if isinstance(item, list)]
    if max(len(alone), len(lists), len(texts_of(given))) != len(given):
        message = f"{param} is a text, a list of texts, of token ids, or of such lists"
        raise ApiError(message, param=param)
    return [alone] if alone else lists


_ABSENT: Mapping[type[Struct], Mapping[str, Absent]] = {
    ChatBody: {**fields.OPENAI, **fields.OTHERS, **fields.CHAT},
    CompletionBody: {**fields.OPENAI, **fields.OTHERS, **fields.COMPLETION},
    EmbeddingBody: {**fields.OPENAI, **fields.OTHERS, **fields.EMBEDDING},
    MoveBody: {},
}
"""Kind of a body → the fields that it does not have; where there are none, unknown ones are never ignored."""


@dataclass(frozen=True, slots=True)
class Read(Generic[BodyKind]):
    """A body that was read."""

    body: BodyKind
    ignored: tuple[str, ...]
    """Fields that might have changed the answer, and were ignored."""


def read_body(data: bytes, kind: type[BodyKind], *, ignores_unknown: bool = False) -> Read[BodyKind]:
    """The body of a request; `ignores_unknown`: without the fields that are none of OpenAI's API.

    Raises:
        ApiError: no JSON, a field is missing, wrong, given twice, unknown, or not there.
    """
    given = _decode(data)
    known, absent = {field.name for field in msgspec.structs.fields(kind)}, _ABSENT[kind]
    can_ignore = ignores_unknown and bool(absent)
    kept, ignored = {}, []
    for name, value in given.items():
        if name in known:
            kept[name] = value
        elif name in absent and absent[name].allows(value, given):
            continue
        elif can_ignore and name not in fields.OPENAI:
            ignored.append(name)
        elif name in absent:
            raise unsupported(name, absent[name].why)
        else:
            raise ApiError(f"unknown field: {name}", param=name, code="unknown_parameter")
    try:
        body = msgspec.convert(kept, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    _check_together(body)
    return Read(body, tuple(ignored))


def _decode(data: bytes) -> dict[str, Any]:
    """An object of JSON, each of whose fields is given once."""
    if not data:
        raise ApiError("the body is empty: send JSON")
    try:
        given = msgspec.json.decode(data)
        json.loads(data, object_pairs_hook=_check_once)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ApiError(f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise ApiError("the body is JSON, but no object with the fields of a request")
    return given


def _check_once(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object with a field that is given twice: readers differ on which one counts."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ApiError(f"{name} is given twice", param=name, code="duplicate_parameter")
        seen.add(name)


def _check_together(body: Struct) -> None:
    """Refuse fields that go with others which are not there, and no tokens at all."""
    if isinstance(body, Body) and body.max_tokens == 0:
        raise ApiError("max_tokens is 0: give 1 or more", param="max_tokens")
    if isinstance(body, Body) and body.stream_options is not None and not body.stream:
        raise ApiError("stream_options goes with stream: true", param="stream_options")
    if isinstance(body, ChatBody) and body.top_logprobs and not body.logprobs:
        raise ApiError("top_logprobs goes with logprobs: true", param="top_logprobs")


def _invalid(text: str) -> ApiError:
    """A message of msgspec, with the field that it is about."""
    missing = re.search(r"missing required field `(\w+)`", text)
    unknown = re.search(r"unknown field `([^`]*)`", text)
    place = re.search(r"`\$\.?([^`]*)`$", text)
    if unknown:
        return ApiError(f"unknown field: {unknown[1]}", param=unknown[1], code="unknown_parameter")
    if missing:
        return ApiError(f"missing field: {missing[1]}", param=missing[1], code="missing_required_parameter")
    return ApiError(text, param=place[1] if place else None)
