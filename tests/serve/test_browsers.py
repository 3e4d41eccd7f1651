"""Requests as browsers send them: those of other pages are refused, unless their origin is let in."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from partc.errors import ConfigError
from tests.serve.server import JSON, MODEL, Server, serving

pytestmark = pytest.mark.serve

PAGE = "https://chat.example"
BODY = json.dumps({"model": MODEL, "prompt": "abc", "max_tokens": 2}).encode()
COMPLETE = "/v1/completions"


def ask(
    server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers and text of an answer."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    connection.request(method, path, body, {"Host": place.netloc, **headers})
    answer = connection.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    connection.close()
    return answer.status, *told


@pytest.fixture(scope="module")
def open_server(build: Path) -> Iterator[Server]:
    """A server that lets pages of one origin in."""
    with serving(build, "--cors-origin", PAGE + "/", "--cors-origin", "app://notes.local") as made:
        yield made


FOREIGN = [
    {"Origin": "https://foreign.example"},
    {"Origin": "https://foreign.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://localhost.foreign.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda headers: " ".join(headers.values()))
def test_pages_elsewhere_are_refused_everywhere(server: Server, headers: dict[str, str]) -> None:
    before = server.metric("partc_prompt_tokens_total")
    for method, path, body in (
        ("POST", COMPLETE, BODY), ("GET", "/ring", None), ("GET", "/v1/models", None), ("GET", "/metrics", None),
        ("GET", "/", None), ("POST", "/ring/move", b"{}"), ("GET", "/health", None),
    ):  # fmt: skip
        for kind in ("application/json", "text/plain"):
            status, told, text = ask(server, method, path, {**headers, "Content-Type": kind}, body)
            assert (status, json.loads(text)["error"]["code"]) == (403, "foreign_origin"), path
            assert "access-control-allow-origin" not in told
    assert server.metric("partc_prompt_tokens_total") == before


def test_the_own_page_and_programs_pass(server: Server) -> None:
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    for headers in ({}, {"Sec-Fetch-Site": "none"}, own, {"Origin": server.url.upper()}):
        assert ask(server, "POST", COMPLETE, {**headers, **JSON}, BODY)[0] == 200
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask(server, "GET", "/", visit)[0] == 200, "a link leads to the page"
    assert ask(server, "GET", "/v1/models", visit)[0] == 403


@pytest.mark.parametrize("origin", [PAGE, "app://notes.local"])
def test_a_page_that_is_let_in(open_server: Server, origin: str) -> None:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
        "Access-Control-Request-Private-Network": "true",
    }
    status, told, _ = ask(open_server, "OPTIONS", COMPLETE, asked)
    assert status == 204
    assert told["access-control-allow-origin"] == origin
    assert told["access-control-allow-headers"] == asked["Access-Control-Request-Headers"]
    assert "POST" in told["access-control-allow-methods"]
    assert told["access-control-allow-private-network"] == "true"
    assert told["vary"] == "Origin"
    page = {"Origin": origin, "Sec-Fetch-Site": "cross-site", **JSON}
    for body, expected in ((BODY, 200), (b"{}", 400), (BODY.replace(b"2}", b'2, "stream": true}'), 200)):
        status, told, _ = ask(open_server, "POST", COMPLETE, page, body)
        assert (status, told["access-control-allow-origin"]) == (expected, origin), "it may read errors, too"
        assert "partc-ignored-fields" in told["access-control-expose-headers"]


def test_it_gets_the_api_alone_and_others_nothing(open_server: Server) -> None:
    preflight = {"Access-Control-Request-Method": "POST"}
    for origin, path in ((PAGE, "/ring/move"), (PAGE, "/"), (PAGE, "/ring"), ("https://a.example", COMPLETE)):
        page = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        for method, headers in (("OPTIONS", preflight), ("GET", {}), ("POST", JSON)):
            status, told, _ = ask(open_server, method, path, {**page, **headers}, b"{}")
            assert (status, "access-control-allow-origin" in told) == (403, False), (origin, path, method)


def test_with_keys_a_preflight_needs_none(build: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    keys.chmod(0o600)
    with serving(build, "--api-key-file", str(keys), "--cors-origin", PAGE, ready=False) as server:
        preflight = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        assert ask(server, "OPTIONS", COMPLETE, preflight)[0] == 204
        for key, expected in (("first", 200), ("second", 401)):
            page = {"Origin": PAGE, "Authorization": f"Bearer {key}"}
            status, told, _ = ask(server, "GET", "/v1/models", page)
            assert (status, told["access-control-allow-origin"]) == (expected, PAGE)
        assert "PAGE_TOKEN" in ask(server, "GET", "/", {})[2], "a page that all may load tells no token"


def test_the_token_of_the_page(server: Server) -> None:
    """Of this build there are no moves; so what passes is no ring, and what does not is refused before."""
    page = ask(server, "GET", "/", {})[2]
    token = page.partition('name="partc-page-token" content="')[2].partition('"')[0]
    assert len(token) >= 32
    assert "PAGE_TOKEN" not in page
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin", **JSON}
    body = json.dumps({"ring": "none", "submodules": "1", "to": "b"}).encode()
    for headers, expected in (
        ({**own, "partc-page-token": token}, 404),
        ({**own, "partc-page-token": token[1:]}, 403),
        (own, 403),
        ({"Sec-Fetch-Site": "none", **JSON}, 403),
        (JSON, 404),
    ):
        assert ask(server, "POST", "/ring/move", headers, body)[0] == expected, headers


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "chat.example",
        "https://chat.example/page",
        "null",
        "https://u@h",
        "",
        "http://[::1",
        "http://a:b",
        "http://a#b",
    ],
)
def test_what_is_no_origin(text: str) -> None:
    from partc.serve.browsers import read_origins

    with pytest.raises(ConfigError) as refused:
        read_origins([text])
    assert "https://chat.example" in str(refused.value.hint)


def test_origins_are_read_as_browsers_write_them() -> None:
    from partc.serve.browsers import read_origins

    given = ["HTTPS://Chat.Example:443/", "http://localhost:3000", "http://[::1]:80"]
    assert read_origins(given) == {"https://chat.example", "http://localhost:3000", "http://[::1]"}
