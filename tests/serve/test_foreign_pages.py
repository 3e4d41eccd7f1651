"""A page of somebody else's in Chromium: it cannot make the ring compute, unless its origin is let in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.server import MODEL, Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.serve, pytest.mark.browser]

ATTACK = """async ([url, body, path]) => {
  const told = [];
  const frame = document.createElement("iframe");
  frame.name = "sink";
  document.body.append(frame);
  for (const type of ["text/plain", "application/json", "application/x-www-form-urlencoded", ""])
    for (const mode of ["no-cors", "cors"])
      await fetch(url + path, {method: "POST", mode, body: new Blob([body], {type})})
        .then(answer => told.push(answer.type + " " + answer.status), () => told.push("failed"));
  navigator.sendBeacon(url + path, new Blob([body], {type: "text/plain"}));
  const form = document.createElement("form");
  Object.assign(form, {method: "POST", action: url + path, enctype: "text/plain", target: "sink"});
  const field = document.createElement("input");
  Object.assign(field, {name: body.slice(0, -1) + ', "user": "', value: '"}'});
  form.append(field);
  document.body.append(form);
  const loaded = new Promise(resolve => { frame.onload = resolve; });
  form.submit();
  await loaded;
  for (const path of ["/ring", "/v1/models", "/metrics"]) {
    const image = new Image();
    await new Promise(resolve => { image.onload = image.onerror = resolve; image.src = url + path; });
  }
  return told;
}"""
"""Everything by which a page may send a request: the answers that it saw."""
ANSWER = """async ([url, body]) => {
  const answer = await fetch(url + "/v1/completions", {
    method: "POST", headers: {"content-type": "application/json", "x-stainless-lang": "js"}, body,
  });
  return (await answer.json()).choices[0].text;
}"""
BODY = f'{{"model": "{MODEL}", "prompt": "abc", "max_tokens": 5, "seed": 5}}'


@contextmanager
def page_of(browser: Browser) -> Iterator[Page]:
    """A page that this machine serves at another port; for a browser it is of another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body>")

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{host.server_address[1]}/")
        try:
            yield page
        finally:
            page.close()
            host.shutdown()


def test_a_page_elsewhere_cannot_make_the_ring_compute(server: Server, browser: Browser) -> None:
    names = ("partc_prompt_tokens_total", "partc_generated_tokens_total", "partc_requests_in_flight")
    before = [server.metric(name) for name in names]
    with page_of(browser) as page:
        told = page.evaluate(ATTACK, [server.url, BODY, "/v1/completions"])
        assert set(told) <= {"opaque 0", "failed"}, "nothing can be read"
        assert "opaque 0" in told, "requests have reached the server"
        with pytest.raises(Exception, match="Failed to fetch"):
            page.evaluate(ANSWER, [server.url, BODY])
    assert [server.metric(name) for name in names] == before
    with serving_page(server, browser) as page:
        assert len(page.evaluate(ANSWER, ["", BODY])) == 5, "the server's own page can"


@contextmanager
def serving_page(server: Server, browser: Browser) -> Iterator[Page]:
    """The server's own page."""
    page = browser.new_page()
    page.goto(server.url)
    yield page
    page.close()


def test_a_page_that_is_let_in_can(build: Path, browser: Browser) -> None:
    with page_of(browser) as page:
        origin = page.evaluate("location.origin")
        with serving(build, "--cors-origin", origin) as server:
            expected = server.complete(max_tokens=5)[1]["choices"][0]["text"]
            assert page.evaluate(ANSWER, [server.url, BODY]) == expected
            told = page.evaluate(ATTACK, [server.url, '{"ring": "build", "apply": true}', "/ring/move"])
            assert set(told) <= {"opaque 0", "failed"}
