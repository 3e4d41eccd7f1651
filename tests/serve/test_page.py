"""The page in Chromium."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.serve.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.serve, pytest.mark.browser]
WAIT_MS = 60_000


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The page, which asks no other host, and writes nothing to the console."""
    opened, noise = browser.new_page(), []
    opened.set_default_timeout(WAIT_MS)
    opened.on("console", lambda message: noise.append(message.text))
    opened.on("pageerror", lambda error: noise.append(str(error)))
    opened.on(
        "request", lambda request: noise.append(request.url) if not _is_own(request.url, server) else None
    )
    opened.goto(f"{server.url}/")
    opened.wait_for_selector("#devices li")
    yield opened
    opened.close()
    # Chromium itself notes each answer that is an error.
    assert [text for text in noise if "status of 400" not in text] == []


def _is_own(url: str, server: Server) -> bool:
    return url.startswith((server.url, "data:"))


def test_a_conversation(page: Page) -> None:
    page.fill("#text", "abc")
    page.keyboard.press("Enter")
    page.wait_for_selector("#stop:not([disabled])")
    page.wait_for_selector("#stop[disabled]")
    turns = page.locator(".turn").all_inner_texts()
    assert len(turns) == 2
    assert turns[0] == "abc"
    assert re.fullmatch("[a-l ]{40,128}", turns[1])
    page.click("#fresh")
    assert page.locator(".turn").count() == 0


STOP_AT_THE_FIRST_WORD = """
new MutationObserver((_, observer) => {
  const stop = document.querySelector("#stop");
  if (stop.disabled || !document.querySelector(".turn.assistant")?.textContent) return;
  observer.disconnect();
  stop.click();
}).observe(document.body, {subtree: true, childList: true, characterData: true});
"""
"""In the page: a click from outside may come when the answer is whole."""


def test_an_answer_is_stopped(page: Page, server: Server) -> None:
    page.click("summary")
    page.fill("#tokens", "850")
    page.fill("#text", "abc")
    page.evaluate(STOP_AT_THE_FIRST_WORD)
    page.click("#send")
    page.wait_for_selector(".turn.assistant:not(:empty)")
    page.wait_for_selector("#stop[disabled]")
    assert 0 < len(page.locator(".turn.assistant").inner_text()) < 600
    assert page.locator(".turn.bad").count() == 0


def test_errors_are_told(page: Page) -> None:
    page.fill("#text", "a" * 2000)
    page.click("#send")
    page.wait_for_selector(".turn.bad")
    assert "2005 tokens" in page.locator(".turn.bad").inner_text()


def test_a_device_that_dies_is_shown_and_the_text_goes_on(page: Page, server: Server) -> None:
    assert page.locator(".device.away").count() == 0
    page.click("summary")
    page.fill("#tokens", "400")
    page.fill("#text", "abc")
    page.click("#send")
    page.wait_for_selector(".turn.assistant:not(:empty)")
    os.kill(server.runner("c"), signal.SIGKILL)
    page.wait_for_selector("#stop[disabled]")
    assert len(page.locator(".turn.assistant").inner_text()) > 150
    page.wait_for_selector("#devices li:nth-child(3):not(.away)")


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_every_field_has_a_label(page: Page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    page.click("summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    fields = "[...document.querySelectorAll('input, textarea')].filter(e => !e.labels.length).length"
    assert page.evaluate(fields) == 0


def test_axe_finds_nothing_serious(page: Page) -> None:
    """Rules of accessibility, as axe-core checks them, in both schemes, with a conversation on the page."""
    modules = os.environ.get("PARTC_NODE")
    if not modules:
        pytest.skip("PARTC_NODE names no folder with npm's axe-core")
    page.click("summary")
    page.fill("#text", "abc")
    page.click("#send")
    page.wait_for_selector("#stop:not([disabled])")
    page.wait_for_selector("#stop[disabled]")
    page.evaluate((Path(modules) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = page.evaluate("axe.run().then(told => told.violations)")
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert serious == [], scheme
