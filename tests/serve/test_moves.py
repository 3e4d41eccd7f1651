"""Moves of sub-modules over HTTP and on the page: tried, made, refused; the text goes on."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from partc.cli.main import run
from tests.serve.server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.serve, pytest.mark.ort, pytest.mark.hf]

ROOT = Path(__file__).parents[2]
DEVICES = """\
source: phone
survive: one
devices:
  phone: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB}
  board: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB}
  old: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 15 MB}
links:
  default: {bandwidth: 1 Gbit/s, latency: 0.1 ms}
place: {phone: layers 0-3, board: layers 4-7, old: layers 8-11}
"""
BODY = {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 150, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("moves")
    (folder / "devices.yaml").write_text(DEVICES)
    (folder / "template.jinja").write_text("{{ messages[0].content }}")
    files = [str(ROOT / "examples/storyteller/model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    with serving(folder / "build") as made:
        yield made


def _move(server: Server, submodules: str, to: str, **others: Any) -> tuple[int, Any]:
    return server.post("/ring/move", {"ring": "build", "submodules": submodules, "to": to, **others})


@pytest.mark.in_turns(3)
def test_a_move_is_tried_then_made_and_the_text_goes_on(server: Server) -> None:
    status, tried = _move(server, "12-16", "old")
    assert (status, tried["moved"]) == (200, None)
    assert "per token before" in tried["text"]
    assert {row[0] for row in tried["rows"]} == {"phone", "board", "old"}
    _, expected = server.post("/v1/completions", BODY)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", BODY)))
    before = server.metric("partc_generated_tokens_total")
    thread.start()
    while server.metric("partc_generated_tokens_total") < before + 20:
        pass
    status, made = _move(server, "12-16", "old", apply=True)
    assert status == 200, made
    assert made["moved"]["stopped_s"] < 5
    thread.join(60)
    ((status, answer),) = answers
    assert status == 200
    assert answer["choices"] == expected["choices"]
    assert _move(server, "12-16", "old")[1]["error"]["message"].endswith("old computes that already")


@pytest.mark.in_turns(5)
@pytest.mark.parametrize(
    ("submodules", "to", "status", "message"),
    [
        ("12..13", "old", 409, "'12..13' is neither like 8-11"),
        ("900", "old", 409, "900"),
        ("12", "tablet", 409, "'tablet' is none of the devices"),
    ],
)
def test_what_cannot_be_moved_is_said(
    server: Server, submodules: str, to: str, status: int, message: str
) -> None:
    found, told = _move(server, submodules, to)
    assert found == status
    assert message in told["error"]["message"]


def test_only_known_rings_and_fields(server: Server) -> None:
    assert server.post("/ring/move", {"ring": "other", "submodules": "1", "to": "old"})[0] == 404
    assert server.post("/ring/move", {"ring": "build", "submodules": "1", "to": "old", "now": 1})[0] == 400


@pytest.mark.browser
def test_the_page_moves_sub_modules(server: Server, browser: Browser) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(f"{server.url}/")
    page.wait_for_selector("#move:not([hidden])")
    page.fill("#submodules", "9-11")
    page.select_option("#to", "phone")
    page.click("text=Preview")
    expect(page.locator("#moved")).to_contain_text("nothing was moved")
    assert "phone: " in page.locator("#moved").inner_text()
    page.click("button[value=apply]")
    expect(page.locator("#moved")).to_contain_text("requests stood still")
    expect(page.locator("#changes")).to_contain_text("by hand")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


@pytest.mark.browser
def test_the_page_offers_no_move_within_one_device(server: Server, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{server.url}/")
    page.wait_for_selector("#move:not([hidden])")
    alone = [{"name": "alone", "ring": {"devices": [{"device": "a", "is_present": True}]}}]
    assert page.evaluate("rings => { offer(rings); return get('move').hidden; }", alone)
    page.close()


@pytest.mark.in_turns(2)
@pytest.mark.browser
def test_a_page_elsewhere_moves_nothing(server: Server, browser: Browser) -> None:
    """Neither one of another origin, nor one that is no page of this server's but says so."""
    from tests.serve.test_foreign_pages import ATTACK, page_of, serving_page

    moves = [("12-16", "board"), ("9-11", "board"), ("12-16", "old"), ("9-11", "phone")]
    submodules, to = next(move for move in moves if _move(server, *move)[0] == 200)
    asked = json.dumps({"ring": "build", "submodules": submodules, "to": to, "apply": True})
    before = _placed(server)
    with page_of(browser) as page:
        told = page.evaluate(ATTACK, [server.url, asked, "/ring/move"])
    assert set(told) <= {"opaque 0", "failed"}
    with serving_page(server, browser) as page:
        assert page.evaluate(FORGED, [asked]) == [403, 403]
    assert _placed(server) == before, "nothing has moved"
    assert _move(server, submodules, to, apply=True)[0] == 200, "a program may"
    assert _placed(server) != before


def _placed(server: Server) -> Any:
    """The sub-modules of each device, as the ring says; the first state that is told may be seconds old."""
    told = []
    with urllib.request.urlopen(f"{server.url}/ring", timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: ") and (ring := json.loads(line[6:])["rings"][0]["ring"]):
                told.append({device["device"]: device["submodules"] for device in ring["devices"]})
            if len(told) == 3:
                return told[-1]
    raise AssertionError("the ring does not say how it is")


FORGED = """async ([body]) => {
  const told = [];
  for (const token of [{}, {"partc-page-token": "PAGE_TOKEN"}])
    told.push((await fetch("/ring/move", {
      method: "POST", headers: {"content-type": "application/json", ...token}, body,
    })).status);
  return told;
}"""
"""Moves that are asked for without the token, and with one that is none."""


def test_with_keys_nobody_moves_unless_it_is_allowed(server: Server, tmp_path: Path) -> None:
    from partc.serve.server import ServerSettings
    from tests.serve.test_rings import _settings

    settings: Any = _settings(ServerSettings)
    assert settings.may_move
    assert not _with(settings, keys=frozenset({b"k"})).may_move
    assert not _with(settings, host="0.0.0.0").may_move
    assert _with(settings, host="0.0.0.0", keys=frozenset({b"k"}), lets_move=True).may_move


def _with(settings: Any, **fields: Any) -> Any:
    from dataclasses import replace

    return replace(settings, **fields)
