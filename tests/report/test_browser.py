"""The report as a reader sees it: opened from a file, without a network, wide and narrow, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from partc.report.sources import read_subject
from partc.report.write import write_report
from tests.report.figures import Shown, check_figures
from tests.report.plans import make_plan, make_problem, plans, record_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
PLANS = plans()
_RUN = {"latency", "throughput", "one device"}
"""Plans that are shown with a run."""

_FIGURES = """() => [...document.querySelectorAll("[data-value]")].map(element => ({
  attributes: Object.fromEntries([...element.attributes].map(item => [item.name, item.value])),
  text: element.localName === "data" ? element.textContent : element.title,
}))"""
_BARS = """() => {
  const found = [];
  for (const lane of document.querySelector(".timeline .lanes").querySelectorAll(".lane")) {
    const track = lane.querySelector(".track").getBoundingClientRect();
    for (const bar of lane.querySelectorAll(".track > i")) {
      const box = bar.getBoundingClientRect();
      found.push([bar.title, (box.left - track.left) / track.width, (box.right - track.left) / track.width]);
    }
  }
  return found;
}"""
_CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = color => {
    const [r, g, b] = rgba(color).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const below = element => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (rgba(color)[3] === 255) return color;
    }
    return "white";
  };
  const words = [...document.body.querySelectorAll("*")].filter(element =>
    element.localName !== "style" && element.getClientRects().length
    && parseFloat(getComputedStyle(element).fontSize) > 0
    && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  return words.map(element => {
    const [a, b] = [light(getComputedStyle(element).color), light(below(element))];
    return [element.className, element.textContent.trim(), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}"""


@contextmanager
def opened(
    browser: Browser, folder: Path, plan: dict[str, Any], width: int, scheme: Any = "light", run: bool = False
) -> Iterator[Page]:
    """The page of a plan; fails at its end where it asked for anything or complained."""
    (folder / "plan.json").write_text(json.dumps(plan))
    record = folder / "run.json"
    record.write_text(json.dumps(record_of(plan, requests=2, scale=1.3)) if run else "")
    write_report(read_subject(folder / "plan.json", record if run else None), folder / "report.html")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.context.set_offline(True)
    address = (folder / "report.html").as_uri()
    page.goto(address)
    yield page
    assert complaints == []
    assert [url for url in requests if url not in (address, "data:,")] == []
    page.close()


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("name", PLANS)
def test_every_figure_is_that_of_the_plan(name: str, browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, PLANS[name], 1280, run=name in _RUN) as page:
        figures = [Shown(item["attributes"], item["text"]) for item in page.evaluate(_FIGURES)]
    places = check_figures(PLANS[name], figures)
    assert {"/answer/value", "/predicted/memory/0/needed_bytes"} <= places


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", PLANS)
def test_the_page_is_as_wide_as_the_window(name: str, width: int, browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, PLANS[name], width, run=name in _RUN) as page:
        page.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        over = page.evaluate(
            """() => [...document.querySelectorAll("main *")].filter(element =>
                 !element.closest(".scroll, .hidden, .arcs, .track, .segment")
                 && element.getBoundingClientRect().right > innerWidth).map(element => element.outerHTML)"""
        )
        assert over == []


@pytest.mark.parametrize("width", [400, 1280])
def test_bars_lie_where_the_plan_says(width: int, browser: Browser, tmp_path: Path) -> None:
    plan = PLANS["latency"]
    step = plan["predicted"]["phases"][-1]
    with opened(browser, tmp_path, plan, width) as page:
        bars = page.evaluate(_BARS)
    stages = [(s["device"], s["start_s"], s["finish_s"]) for s in step["stages"]]
    messages = [(f"{m['from']} → {m['to']}", m["start_s"], m["arrive_s"]) for m in step["messages"]]
    assert len(bars) == len(stages) + len(messages)
    for name, start, end in [*stages, *messages]:
        near = [
            bar
            for bar in bars
            if bar[0].startswith(f"{name}:") and bar[1] == pytest.approx(start / step["latency_s"], abs=0.005)
        ]
        assert any(bar[2] == pytest.approx(end / step["latency_s"], abs=0.02) for bar in near), (
            name,
            start,
            end,
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["latency", "many", "with notes"])
def test_text_can_be_read(name: str, scheme: str, browser: Browser, tmp_path: Path) -> None:
    """Contrast of at least 4.5 (WCAG AA) of all text to what it stands on."""
    with opened(browser, tmp_path, PLANS[name], 1280, scheme, run=name in _RUN) as page:
        contrasts = page.evaluate(_CONTRASTS)
    assert len(contrasts) > 100
    assert [item for item in contrasts if item[2] < 4.5] == []


def test_light_and_dark_differ(browser: Browser, tmp_path: Path) -> None:
    script = "getComputedStyle(document.body).backgroundColor"
    colours = []
    for scheme in ("light", "dark"):
        with opened(browser, tmp_path, PLANS["latency"], 1280, scheme) as page:
            colours.append(page.evaluate(script))
    assert colours[0] != colours[1]


def test_devices_can_be_told_apart(browser: Browser, tmp_path: Path) -> None:
    """By colour or pattern, however many there are."""
    with opened(browser, tmp_path, PLANS["many"], 1280) as page:
        looks = page.evaluate(
            """() => [...document.querySelectorAll(".segment")].map(element =>
                 getComputedStyle(element).backgroundColor + getComputedStyle(element).backgroundImage)"""
        )
    assert len(looks) == len(set(looks)) == 11


def test_pictures_have_words(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, PLANS["latency"], 1280, run=True) as page:
        labels = page.evaluate(
            "[...document.querySelectorAll('[role=img], [role=region], [role=group], svg')]"
            ".map(element => element.getAttribute('aria-label'))"
        )
    assert len(labels) > 8
    assert all(labels)


def test_a_run_is_drawn_below_the_prediction(browser: Browser, tmp_path: Path) -> None:
    plan = make_plan(make_problem(3, 12))
    with opened(browser, tmp_path, plan, 1280, run=True) as page:
        captions = page.locator("figcaption").all_inner_texts()
        rows = page.locator("section", has_text="Predicted against measured").last.locator("tbody th[scope]")
        count = rows.count()
    assert [text.partition(":")[0] for text in captions[:2]] == ["Predicted", "Measured"]
    assert captions[-1].startswith("Measured: 2 requests")
    phases = plan["predicted"]["phases"]
    assert count == sum(len(phase["stages"]) + len(phase["messages"]) for phase in phases)
