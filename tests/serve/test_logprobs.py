"""Probabilities of tokens, and rows of earlier turns, at the endpoint."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.format.message_parts import Likely
from partc.runtime.client.stop_search import StopSearch
from partc.serve.answer import Answer
from tests.runtime.test_text import Bytes
from tests.serve.server import MODEL, Server, events, pieces

CHAT = "/v1/chat/completions"
MESSAGES: Any = [{"role": "user", "content": "abc"}]


class _Named(Bytes):
    def name(self, token: int) -> str:
        return f"<{token}>"


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=3), max_size=2))
def test_the_texts_of_the_tokens_are_the_answers(text: str, stops: list[str]) -> None:
    """Characters of several tokens, and stop texts that begin within one, included."""
    answer = Answer(_Named().stream([]), StopSearch(stops), frozenset(), alternatives=1)
    told = []
    for token in text.encode(errors="replace"):
        answer.push(token, [Likely(token, -1.0), Likely(token, -math.inf)])
        told += answer.told()
    answer.end("length")
    told += answer.told()
    whole = "".join(answer.text)
    assert whole.startswith("".join(token.text for token in told))
    if not answer.search.is_found:
        assert "".join(token.text for token in told) == whole
        assert len(told) == len(text.encode(errors="replace"))
    assert [token.begin for token in told] == [
        len("".join(t.text for t in told[:i])) for i in range(len(told))
    ]
    assert [token.logprob for token in told] == [-1.0] * len(told)
    assert all(logprob == -9999.0 for token in told for _, logprob in token.alternatives)
    assert told == answer.probabilities


@pytest.mark.serve
@pytest.mark.parametrize("count", [0, 3])
def test_probabilities_of_a_conversation(server: Server, count: int) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 9, "temperature": 0, "logprobs": True}
    body = {**body, "top_logprobs": count} if count else body
    choice = server.post(CHAT, body)[1]["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    for entry in content:
        assert entry["logprob"] <= 0
        assert len(entry["top_logprobs"]) == count
        if entry["token"]:
            assert entry["bytes"] == list(entry["token"].encode())
        if count:
            logprobs = [other["logprob"] for other in entry["top_logprobs"]]
            assert logprobs == sorted(logprobs, reverse=True)
            assert entry["logprob"] == logprobs[0], "the most likely one is taken"
    stream = events(server.post(CHAT, {**body, "stream": True})[1])[:-1]
    chunks = [chunk["choices"][0] for chunk in stream]
    told = [entry for chunk in chunks if chunk["logprobs"] for entry in chunk["logprobs"]["content"]]
    assert told == content
    assert pieces(stream) == choice["message"]["content"]


@pytest.mark.serve
def test_probabilities_of_a_completion(server: Server) -> None:
    choice = server.complete(max_tokens=9, logprobs=2)[1]["choices"][0]
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert {len(told[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {9}
    for token, logprob, others, at in zip(*(told[key] for key in told), strict=True):
        assert choice["text"][at : at + len(token)] == token
        assert others[token] == logprob <= 0
        assert 2 <= len(others) <= 3
    assert server.complete(max_tokens=9)[1]["choices"][0]["logprobs"] is None
    assert server.complete(max_tokens=9, logprobs=0)[1]["choices"][0]["text"] == choice["text"]


@pytest.mark.serve
def test_openais_client_reads_them(server: Server) -> None:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("no openai")
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        options: Any = {
            "model": MODEL,
            "messages": MESSAGES,
            "max_tokens": 5,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 2,
        }
        choice = client.chat.completions.create(**options).choices[0]
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
        stream = client.chat.completions.create(**options, stream=True)
        told = [chunk.choices[0].logprobs for chunk in stream if chunk.choices[0].logprobs]
        assert [entry for each in told for entry in each.content or ()] == choice.logprobs.content


@pytest.mark.serve
def test_a_second_turn_goes_on_behind_the_first(server: Server) -> None:
    """With the template of the tests, which writes a turn as it was generated."""
    turn = [{"role": "user", "content": "abcdefghijkl abcdefghijkl"}]
    body = {"model": MODEL, "max_tokens": 9, "seed": 4}

    def cached(messages: list[dict[str, str]], **fields: Any) -> tuple[int, str]:
        answer = server.post(CHAT, {**body, "messages": messages, **fields})[1]
        details = answer["usage"]["prompt_tokens_details"]
        return details["cached_tokens"], answer["choices"][0]["message"]["content"]

    first, text = cached(turn)
    assert first == 0
    longer = [*turn, {"role": "assistant", "content": text}, {"role": "user", "content": "abc"}]
    alone = cached(longer, deterministic=True)
    assert alone[0] == 0
    assert cached(longer)[0] >= len(turn[0]["content"]) + 4
    assert cached(longer, deterministic=True) == alone
