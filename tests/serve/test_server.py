"""The endpoint over HTTP: shapes of answers and streams, refusals, limits, cancellation."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.runtime.bundles import language_model
from tests.serve.server import JSON, LENGTH, MODEL, Server, events, pieces, serving

pytestmark = pytest.mark.serve

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "abc"}]


def chat(server: Server, **fields: Any) -> tuple[int, Any]:
    body = {"model": MODEL, "messages": MESSAGES, "seed": 5, "max_tokens": 6, **fields}
    return server.post(CHAT, body)


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_models(server: Server) -> None:
    status, listed = server.get("/v1/models")
    assert status == 200
    (model,) = listed["data"]
    assert (model["id"], model["object"], model["max_model_len"], model["chat"]) == (
        MODEL,
        "model",
        LENGTH,
        True,
    )
    assert server.get(f"/v1/models/{MODEL}") == (200, model)
    assert server.get("/v1/models/") == (200, listed)
    status, error = server.get("/v1/models/another")
    assert (status, error["error"]["code"], error["error"]["param"]) == (404, "model_not_found", "model")


def test_health_and_metrics(server: Server) -> None:
    assert server.get("/health") == (200, {"status": "ok"})
    before = server.metric("partc_generated_tokens_total")
    assert server.complete(max_tokens=7)[0] == 200
    assert server.metric("partc_generated_tokens_total") == before + 7
    assert server.metric("partc_ready") == 1


def test_an_answer_has_its_shape_and_counts(server: Server) -> None:
    status, answer = chat(server)
    (choice,) = answer["choices"]
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (6, usage["prompt_tokens"] + 6)
    assert usage["prompt_tokens"] == len("<u") - 1 + len("uabc") + 3  # <s> and the role, the text, </t> <s> a


def test_a_stream_says_the_same_in_its_shape(server: Server) -> None:
    whole = chat(server)[1]
    status, text = chat(server, stream=True, stream_options={"include_usage": True})
    *chunks, done = events(text)
    first, *middle, last, usage = chunks
    assert (status, done) == (200, "[DONE]")
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in middle)
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert pieces(chunks) == whole["choices"][0]["message"]["content"]
    assert pieces(events(chat(server, stream=True, seed=6)[1])) != pieces(chunks)


def test_usage_comes_only_if_asked_for(server: Server) -> None:
    for event in events(server.complete(stream=True)[1])[:-1]:
        assert "usage" not in event
        assert event["choices"]


def test_choices_have_their_own_seeds_and_prompts(server: Server) -> None:
    answer = server.complete(prompt=["abc", "def"], n=2, max_tokens=12)[1]
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert server.complete(seed=6, max_tokens=12)[1]["choices"][0]["text"] == texts[1]
    stream = events(server.complete(prompt=["abc", "def"], n=2, max_tokens=12, stream=True)[1])
    assert [pieces(stream, index) for index in range(4)] == texts


def test_prompts_as_token_ids(server: Server) -> None:
    texts = [
        server.complete(prompt=prompt, temperature=0)[1]["choices"][0]["text"]
        for prompt in ("abc", [4, 5, 6], [[4, 5, 6]], ["abc"])
    ]
    assert len(set(texts)) == 1
    assert server.complete(prompt=[4, 5, 7], temperature=0)[1]["choices"][0]["text"] != texts[0]


def test_a_stop_text_ends_the_answer(server: Server) -> None:
    whole = server.complete(max_tokens=40)[1]["choices"][0]["text"]
    stop = whole[10:13]
    answer = server.complete(max_tokens=40, stop=[stop])[1]
    assert answer["choices"][0] == {
        "index": 0, "text": whole[: whole.index(stop)], "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    assert answer["usage"]["completion_tokens"] < 40
    stream = events(server.complete(max_tokens=40, stop=stop, stream=True)[1])
    assert pieces(stream) == whole[: whole.index(stop)]


def test_a_turn_ends_with_the_templates_token(build: Path, server: Server, tmp_path: Path) -> None:
    """`</s>` is no end token of this model, but the template writes it, so an answer ends there."""
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}{# </s> #}")
    body = {"messages": MESSAGES, "seed": 1, "max_tokens": 300}
    with serving(build, "--chat-template", str(template)) as other:
        answer = other.post(CHAT, {"model": MODEL, **body})[1]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert chat(server, **body)[1]["choices"][0]["finish_reason"] == "length"


def test_an_answer_is_never_longer_than_there_is_room(server: Server) -> None:
    answer = server.complete(prompt="a" * (LENGTH - 4), max_tokens=4096)[1]
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (4, "length")
    status, error = server.complete(prompt="a" * LENGTH)
    assert (status, error["error"]["code"]) == (400, "context_length_exceeded")
    assert error["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"foo": 1}, "foo", "unknown_parameter"),
        ({"temperature": "warm"}, "temperature", None),
        ({"temperature": 3}, "temperature", None),
        ({"logprobs": 21}, "logprobs", None),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"presence_penalty": 0.5}, "presence_penalty", "unsupported_parameter"),
        ({"n": 17}, "n", None),
        ({"max_tokens": 0}, "max_tokens", None),
        ({"max_tokens": -2}, "max_tokens", None),
        ({"top_k": 10**20}, "top_k", None),
        ({"prompt": []}, "prompt", None),
        ({"prompt": ""}, "prompt", None),
        ({"prompt": ["a", 1]}, "prompt", None),
        ({"prompt": [-1]}, "prompt", None),
        ({"prompt": [17]}, "prompt", None),
        ({"stop": ""}, "stop", None),
        ({"stop": ["x"] * 17}, "stop", None),
        ({"stream_options": {"include_usage": True}}, "stream_options", None),
    ],
)
def test_what_is_wrong_or_absent_is_refused_by_name(
    server: Server, body: dict[str, Any], param: str, code: str | None
) -> None:
    status, answer = server.complete(**body)
    error = answer["error"]
    assert (status, error["param"], error["code"], error["type"]) == (
        400,
        param,
        code,
        "invalid_request_error",
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    ],
)
def test_conversations_that_are_refused(server: Server, body: dict[str, Any], param: str) -> None:
    status, answer = chat(server, **body)
    assert (status, answer["error"]["param"]) == (400, param)


def test_parts_of_text_are_one_text(server: Server) -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    answer = chat(server, messages=[{"role": "user", "content": parts}])[1]
    assert answer["choices"] == chat(server)[1]["choices"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'"a"', b"[" * 100_000])
def test_bodies_that_are_none(server: Server, data: bytes) -> None:
    status, answer = server.post("/v1/completions", data)
    assert status == 400
    assert set(answer["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses", "/nothing"])
def test_what_is_not_there_says_so(server: Server, path: str) -> None:
    status, answer = server.post(path, {})
    assert (status, answer["error"]["code"]) == (404, "not_found")
    assert server.get(CHAT)[0] == 405


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("identity", 200), ("br, gzip", 415)])
def test_a_compressed_body_is_refused(server: Server, encoding: str, status: int) -> None:
    data = json.dumps({"prompt": "abc", "max_tokens": 1}).encode()
    connection = _open(server)
    headers = {**JSON, "Content-Encoding": encoding}
    connection.request("POST", "/v1/completions", gzip.compress(data) if status == 415 else data, headers)
    answer = connection.getresponse()
    told = json.load(answer)
    connection.close()
    assert answer.status == status
    if status == 415:
        assert told["error"]["code"] == "unsupported_encoding"
        assert encoding in told["error"]["message"]


def test_the_model_may_be_left_out(server: Server) -> None:
    for path, body in (("/v1/completions", {"prompt": "abc"}), (CHAT, {"messages": MESSAGES})):
        status, answer = server.post(path, {"max_tokens": 1, **body})
        assert (status, answer["model"]) == (200, MODEL)
        status, answer = server.post(path, {"max_tokens": 1, "model": "another", **body})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        (missing,) = body
        status, answer = server.post(path, {"max_tokens": 1})
        assert (status, answer["error"]["param"]) == (400, missing)


def test_a_body_that_is_too_large(server: Server) -> None:
    status, answer = server.complete(prompt="a" * 10_000_000)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")


def _open(server: Server) -> http.client.HTTPConnection:
    place = urlsplit(server.url)
    return http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels_its_request(server: Server, stream: bool) -> None:
    before = server.metric("partc_generated_tokens_total")
    connection = _open(server)
    body = {"model": MODEL, "prompt": "abc", "max_tokens": LENGTH - 3, "stream": stream}
    connection.request("POST", "/v1/completions", json.dumps(body), JSON)
    assert eventually(lambda: server.metric("partc_generated_tokens_total") > before)
    connection.close()
    assert eventually(lambda: server.metric("partc_requests_in_flight") == 0)
    assert server.metric("partc_generated_tokens_total") < before + LENGTH - 3
    assert server.metric('partc_requests_total{outcome="cancelled"}') >= 1


def test_other_names_of_this_machine_are_refused(server: Server) -> None:
    """A web page of somebody else's, whose name leads to 127.0.0.1."""
    for host, status in (("evil.example", 403), ("localhost:1", 200), ("[::1]:8000", 200)):
        connection = _open(server)
        connection.request("GET", "/v1/models", headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()


def test_hostile_connections_keep_nobody_out(server: Server) -> None:
    place = urlsplit(server.url)
    silent = [socket.create_connection((str(place.hostname), place.port or 0)) for _ in range(200)]
    for index, one in enumerate(silent):
        one.sendall((b"\0" * 70_000, b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, b"POST", b"")[index % 4])
    assert server.get("/health")[0] == 200
    assert server.complete()[0] == 200
    for one in silent:
        one.close()


def test_a_body_of_two_lengths_ends_the_connection(server: Server) -> None:
    """A proxy that counts by the other length would take the second request for a body."""
    place = urlsplit(server.url)
    body = b'{"prompt": "abc", "max_tokens": 1}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for length, statuses in ((b"", [b"200", b"200"]), (b"Content-Length: 4\r\n", [b"400"])):
        with socket.create_connection((str(place.hostname), place.port or 0), timeout=30) as one:
            one.sendall((head + length + chunked) * 2)
            told = b""
            while told.count(b"HTTP/1.1") < 2 and (data := one.recv(65536)):
                told += data
        assert re.findall(rb"HTTP/1.1 (\d+)", told) == statuses


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_bodies_are_json_by_their_type(server: Server, kind: str | None) -> None:
    data = json.dumps({"prompt": "abc", "max_tokens": 1}).encode()
    for given, status in ((kind, 415), ("application/json", 200), ("Application/JSON; charset=utf-8", 200)):
        connection = _open(server)
        connection.request("POST", "/v1/completions", data, {} if given is None else {"Content-Type": given})
        answer = connection.getresponse()
        told = json.load(answer)
        connection.close()
        assert answer.status == status, told
        if status == 415:
            assert told["error"]["code"] == "unsupported_media_type"


def test_a_field_that_is_given_twice_is_refused(server: Server) -> None:
    for body in (
        b'{"prompt": "abc", "prompt": "abd"}',
        b'{"prompt": "abc", "stream_options": {"a": 1, "a": 1}}',
    ):
        status, answer = server.post("/v1/completions", body)
        assert (status, answer["error"]["code"]) == (400, "duplicate_parameter")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_it_listens_at_every_name_of_this_machine(server: Server, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no ::1")
    connection = http.client.HTTPConnection(host, urlsplit(server.url).port, timeout=30)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_full_queue_is_told(build: Path) -> None:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": LENGTH - 3}
    with serving(build, "--queue", "0") as server, ExitStack() as stack:
        found = set()
        for _ in range(20):
            connection = stack.enter_context(closing(_open(server)))
            connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), JSON)
            answer = connection.getresponse()
            if answer.status != 200:
                found.add((answer.status, json.load(answer)["error"]["code"]))
        assert found == {(429, "queue_full")}


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_keys_queue_and_time(build: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of tests\nfirst\nsecond\n")
    keys.chmod(0o600)
    body = {"model": MODEL, "prompt": "abc", "max_tokens": LENGTH - 3}
    options = ("--api-key-file", str(keys), "--queue", "0", "--timeout", "0.05")
    with serving(build, *options) as server:
        for key, status in ((None, 401), ("third", 401), ("first", 200), ("second", 200)):
            assert server.get("/v1/models", key)[0] == status
        assert server.get("/metrics")[0] == 401
        assert server.get("/health")[0] == 200
        status, answer = server.post("/v1/completions", {**body, "n": 4}, "first")
        assert status == 400, "so many are never taken"
        assert answer["error"]["message"].startswith("4 answers are asked for")
        status, answer = server.post("/v1/completions", body, "first")
        assert (status, answer["error"]["code"]) == (504, "timeout")
        events_ = events(server.post("/v1/completions", {**body, "stream": True}, "first")[1])
        assert events_[-1]["error"]["code"] == "timeout"


def test_a_thousand_connections_and_slow_clients_lose_nothing(server: Server) -> None:
    """Bodies that trickle, headers without end, and a thousand who say nothing, while others are answered."""
    place = urlsplit(server.url)
    where = str(place.hostname), place.port or 0
    before = _memory(server)
    crowd = [socket.create_connection(where, timeout=30) for _ in range(1000)]
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for index, one in enumerate(crowd[:300]):
        one.sendall(
            (
                head + b"Content-Length: 100\r\n\r\n{",
                head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
                head + b"X-Slow: ",
            )[index % 3]
        )
    begun = time.monotonic()
    statuses = [server.complete(max_tokens=8)[0] for _ in range(5)]
    assert statuses == [200] * 5
    assert server.get("/health")[0] == 200
    assert time.monotonic() - begun < 30
    assert _memory(server) < before + (256 << 20)
    for one in crowd:
        one.close()


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: -1",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4",
        b"X: " + b"a" * 100_000,
        b"\0\xff: \x01",
        b"Host: \xff\xfe",
        b"Authorization: Bearer \xff\xff",
    ],
    ids=["negative", "twice", "encoding", "both", "long", "bytes", "host", "key"],
)
def test_hostile_headers_are_refused_or_ignored(server: Server, header: bytes) -> None:
    place = urlsplit(server.url)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=30) as one:
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
        one.shutdown(socket.SHUT_WR)
        answer = one.recv(65536)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert server.get("/health")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "a" * 10_000_000}]},
        {"messages": [{"role": "user", "content": "a"}] * 20_000},
        {"messages": [{"role": "r" * 50_000, "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 5000}]},
        {"chat_template_kwargs": {"messages": 1}},
        {"chat_template_kwargs": {"nested": [[[[[[[[[[1]]]]]]]]]]}},
        {"tools": [{}] * 5000},
    ],
    ids=["prompt", "turns", "role", "parts", "kwargs", "nested", "tools"],
)
def test_hostile_conversations_have_a_clear_end(server: Server, body: dict[str, Any]) -> None:
    status, answer = server.post(CHAT, {"model": MODEL, "messages": MESSAGES, "max_tokens": 2, **body})
    assert status in (200, 400, 413)
    if status != 200:
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert len(answer["error"]["message"]) < 1000
    assert server.get("/health")[0] == 200


def _memory(server: Server) -> int:
    """Resident bytes of the server."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def test_a_model_that_generates_needs_a_tokenizer(tmp_path: Path) -> None:
    build = language_model("null").write(tmp_path / "build")
    command = [sys.executable, "-P", "-m", "partc.cli", "serve", str(build), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert ended.returncode == 1
    assert "this build has no tokenizer, and the answers of an endpoint are texts" in ended.stderr
