"""OpenAI's own client for Python against the endpoint."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.server import MODEL, Server

pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(importlib.util.find_spec("openai") is None, reason="no openai"),
]
MESSAGES: Any = [{"role": "user", "content": "abc"}]


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_list_create_and_stream(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    options = {"model": MODEL, "messages": MESSAGES, "max_tokens": 9, "seed": 3}
    whole = client.chat.completions.create(**options)
    assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 9)
    chunks = list(
        client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_its_helper_for_streams(client: Any) -> None:
    options = {"model": MODEL, "messages": MESSAGES, "seed": 3}
    whole = client.chat.completions.create(**options, max_tokens=9).choices[0].message.content
    with client.chat.completions.stream(**options, stop=whole[5:]) as stream:
        told = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == told == whole[:5]


def test_completions(client: Any) -> None:
    answer = client.completions.create(model=MODEL, prompt=["abc", "abd"], n=2, max_tokens=4, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.completion_tokens == 16


def test_errors_have_their_types(client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="another", messages=MESSAGES)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, logit_bias={"5": 1})
    assert wrong.value.code == "unsupported_parameter"


def test_a_stream_that_is_closed_is_cancelled(client: Any, server: Server) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=890, stream=True)
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 20
    while server.metric("partc_requests_in_flight"):
        assert time.monotonic() < end
