"""Bodies of requests, checked: what is asked for, or an error that names the field.

A field that this server does not have is refused unless its value changes nothing; a field that nobody knows is
refused as well. So an answer is always what was asked for.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from partc.format.message_parts import Sampling
from partc.serve.errors import ApiError, unsupported

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
_Body = TypeVar("_Body", bound="Body | EmbeddingBody | MoveBody")


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both kinds of completions have in common."""

    model: str | None = None
    """It may be left out: a server has one."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Positive | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=_MOST)] | None = None
    """Beyond OpenAI's API; 0 and -1 are all tokens."""
    seed: Annotated[int, Meta(ge=-_MOST - 1, le=_MOST)] | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    """Noted nowhere."""
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
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
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None
    functions: Any = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    """Noted nowhere, as the three below."""
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    @property
    def alternatives(self) -> int | None:
        """See `Body`."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def most_tokens(self) -> int | None:
        """New tokens at most; None: as many as there is room for."""
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: Texts
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)] | None = None

    @property
    def alternatives(self) -> int | None:
        """See `Body`."""
        return self.logprobs

    @property
    def most_tokens(self) -> int:
        """New tokens at most."""
        return self.max_tokens or COMPLETION_TOKENS


class EmbeddingBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/embeddings`."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    user: str | None = None
    """Noted nowhere."""


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


_NO_PENALTY = "this server has no penalties; leave it out, or give 0"
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "frequency_penalty": ((None, 0), _NO_PENALTY),
    "presence_penalty": ((None, 0), _NO_PENALTY),
    "logit_bias": ((None, {}), "this server cannot favour tokens; leave it out"),
    "tool_choice": (
        (None, "none", "auto"),
        'this server cannot force a call; give "auto", and the model decides',
    ),
    "parallel_tool_calls": ((None, True, False), ""),
    "response_format": (
        (None, {"type": "text"}),
        "this server cannot constrain the form of an answer; leave it out, and ask for JSON in the prompt",
    ),
    "functions": ((None,), "deprecated by OpenAI: give `tools`"),
    "function_call": ((None, "none", "auto"), "deprecated by OpenAI: give `tools`"),
    "modalities": ((None, ["text"]), "this server answers with text alone"),
    "audio": ((None,), "this server answers with text alone"),
    "prediction": ((None,), "this server takes no predictions; leave it out"),
    "web_search_options": ((None,), "this server searches nothing; leave it out"),
    "reasoning_effort": ((None,), "give what the model's template takes in chat_template_kwargs"),
    "verbosity": ((None,), "this server cannot control it; ask for a short answer in the prompt"),
    "store": ((None, False), "this server keeps no answers"),
    "service_tier": ((None, "auto", "default"), "this server has one tier"),
    "echo": ((None, False), "this server does not repeat the prompt; leave it out"),
    "suffix": ((None, ""), "this server does not fill gaps; leave it out"),
    "best_of": ((None, 1), "this server returns all answers that it makes; give n"),
}
"""Fields that are not there → the values that change nothing, and the reason."""


def read_body(data: bytes, kind: type[_Body]) -> _Body:
    """The body of a request.

    Raises:
        ApiError: no JSON, a field is missing, wrong, unknown, or not there.
    """
    if not data:
        raise ApiError("the body is empty: send JSON")
    try:
        body = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"the body is no JSON: {error}") from None
    for name, (neutral, why) in _REFUSED.items():
        if getattr(body, name, None) not in neutral:
            raise unsupported(name, why)
    if isinstance(body, Body) and body.stream_options is not None and not body.stream:
        raise ApiError("stream_options goes with stream: true", param="stream_options")
    if isinstance(body, ChatBody) and body.top_logprobs and not body.logprobs:
        raise ApiError("top_logprobs goes with logprobs: true", param="top_logprobs")
    return body


def _invalid(text: str) -> ApiError:
    """A message of msgspec, with the field that it is about."""
    missing = re.search(r"missing required field `(\w+)`", text)
    unknown = re.search(r"unknown field `(\w+)`", text)
    place = re.search(r"`\$\.?([^`]*)`$", text)
    if unknown:
        return ApiError(f"unknown field: {unknown[1]}", param=unknown[1], code="unknown_parameter")
    if missing:
        return ApiError(f"missing field: {missing[1]}", param=missing[1], code="missing_required_parameter")
    return ApiError(text, param=place[1] if place else None)
