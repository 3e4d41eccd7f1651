"""The page as text: right figures, equal bytes for equal input, nothing from elsewhere, clear refusals."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partc.errors import UserError
from partc.planner.model.problem import Device, Drafts, Problem, Submodule
from partc.planner.simulate import simulate_plan
from partc.report.page import render
from partc.report.sources import read_subject
from partc.report.write import write_report
from tests.report.figures import Page, check_figures
from tests.report.plans import make_plan, make_problem, plans, record_of

PLANS = plans()


def page_of(plan: dict[str, Any], folder: Path, record: dict[str, Any] | None = None) -> str:
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    run = folder / "run.json" if record else None
    if run is not None:
        run.write_text(json.dumps(record))
    return render(read_subject(file, run))


@pytest.mark.parametrize("name", PLANS)
def test_every_figure_is_that_of_the_plan(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    places = check_figures(plan, Page(page_of(plan, tmp_path)).figures)
    assert "/answer/value" in places
    for number, use in enumerate(plan["predicted"]["memory"]):
        assert set(use) == {"device", "needed_bytes", "available_bytes"}
        assert f"/predicted/memory/{number}/needed_bytes" in places
        assert f"/predicted/memory/{number}/available_bytes" in places
    for number, phase in enumerate(plan["predicted"]["phases"]):
        at = f"/predicted/phases/{number}"
        assert f"{at}/latency_s" in places
        assert all(f"{at}/stages/{k}/finish_s" in places for k in range(len(phase["stages"])))
        assert all(f"{at}/messages/{k}/bytes" in places for k in range(len(phase["messages"])))
    count = len(plan["answer"]["explain"].get("what_if", []))
    assert all(f"/answer/explain/what_if/{k}/text" in places for k in range(count))
    assert {f"/answer/explain/unused/{name}" for name in plan["answer"]["explain"]["unused"]} <= places


def test_a_wrong_figure_is_found(tmp_path: Path) -> None:
    """The check itself: another plan's page is refused, and so is a figure written in another way."""
    plan = PLANS["latency"]
    text = page_of(plan, tmp_path)
    with pytest.raises(AssertionError):
        check_figures(PLANS["left out"], Page(text).figures)
    with pytest.raises(AssertionError):
        check_figures(plan, Page(re.sub(r" ms</data>", " s</data>", text)).figures)


@pytest.mark.parametrize("name", PLANS)
def test_memory_adds_up(name: str, tmp_path: Path) -> None:
    bars = re.findall(r'<div class="stack [^>]*>(.*?)</div>', page_of(PLANS[name], tmp_path), re.S)
    for bar, use in zip(bars, PLANS[name]["predicted"]["memory"], strict=False):
        sizes = [float(size) for size in re.findall(r'data-value="([^"]+)"', bar)]
        assert sum(sizes) == pytest.approx(use["available_bytes"])
        assert sum(float(width) for width in re.findall(r"width:([\d.]+)%", bar)) == pytest.approx(
            100, abs=0.01
        )


@pytest.mark.parametrize("name", PLANS)
def test_nothing_from_elsewhere_and_no_script(name: str, tmp_path: Path) -> None:
    text = page_of(PLANS[name], tmp_path)
    page = Page(text)
    assert page.addresses == ["data:,"]
    assert not page.tags & {"script", "iframe", "img", "object", "embed", "base"}
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(text) < 1_000_000


def test_equal_input_equal_bytes(tmp_path: Path) -> None:
    plan = PLANS["latency"]
    (tmp_path / "elsewhere").mkdir()
    shuffled = json.loads(json.dumps(plan, sort_keys=True))
    first = page_of(plan, tmp_path, record_of(plan))
    assert first == page_of(shuffled, tmp_path / "elsewhere", record_of(plan))


@pytest.mark.parametrize("name", ["throughput", "with notes"])
def test_the_pipelines_are_the_simulators(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    text = page_of(plan, tmp_path)
    for mode in ("no-bubbles", "bubbles", "sequential"):
        rate = simulate_plan(plan, requests=4, tokens=6, mode=mode).tokens_per_s
        rate *= plan["problem"].get("batch", 1)
        assert f'data-value="{json.dumps(rate)}"' in text


def test_a_run_stands_beside_the_plan(tmp_path: Path) -> None:
    plan = make_plan(make_problem(3, 12))
    text = page_of(plan, tmp_path, record_of(plan, requests=2, scale=2.0))
    assert "×2.00" in text
    assert "2026-01-31T12:00:00Z" in text
    assert "2 requests in flight" in text
    assert "no run yet" not in text
    check_figures(plan, Page(text).figures)


def test_a_plan_that_takes_no_time(tmp_path: Path) -> None:
    """Devices without a measurable time and links without a delay have no rate."""
    problem = make_problem(2, 4)
    phases = tuple(
        replace(phase, time_s=tuple(dict.fromkeys(times, 0.0) for times in phase.time_s), edges=())
        for phase in problem.phases
    )
    links = tuple(replace(link, latency_s=0.0) for link in problem.links)
    devices = tuple(replace(device, memory_bytes=4e9) for device in problem.devices)
    plan = make_plan(replace(problem, phases=phases, links=links, devices=devices), ["device_0"] * 4)
    assert plan["answer"]["value"] == 0
    text = page_of(plan, tmp_path, record_of(plan))
    check_figures(plan, Page(text).figures)
    assert "inf" not in text.lower().replace("info", "")
    assert text.count(">no time<") == 3


def test_a_plan_that_needs_no_memory(tmp_path: Path) -> None:
    plan = make_plan(Problem("latency", "a", (Device("a", 0.0),), (Submodule(0.0, {"a": 1.0}),), ()))
    check_figures(plan, Page(page_of(plan, tmp_path)).figures)


def test_a_throughput_is_held_against_the_simulator_at_the_runs_load(tmp_path: Path) -> None:
    """The predicted rate is that of a full pipeline, which one request cannot fill."""
    plan = PLANS["throughput"]
    for requests, words in ((1, "one request"), (3, "3 requests in flight")):
        rate = simulate_plan(plan, requests=requests, tokens=6, mode="no-bubbles").tokens_per_s
        text = page_of(plan, tmp_path, record_of(plan, requests=requests, scale=2.0))
        (tile,) = re.findall(r"<h2>Measured</h2>(.*?)</div>", text, re.S)
        assert f'data-value="{json.dumps(rate)}"' in tile
        assert f"simulated for {words}" in tile
    assert rate < plan["answer"]["value"]


def test_a_plan_without_a_bound(tmp_path: Path) -> None:
    text = page_of(PLANS["returning"], tmp_path)
    assert "gap not known" in text and "there is no bound" in text


def test_devices_that_share_are_all_shown_and_said(tmp_path: Path) -> None:
    plan = PLANS["shared"]
    text = page_of(plan, tmp_path)
    bands = re.findall(r'<div class="bands">(.*?)</div></div>', text)
    assert bands and all(
        band.count("<div") == 3 and {"d0", "d1", "d2"} <= set(re.findall(r"d\d", band)) for band in bands
    )
    explain = plan["answer"]["explain"]
    assert len(explain["shared"]) > 1
    assert all(line in text for line in [*explain["shared"], explain["best"]["text"]])
    assert '<div class="bands">' not in page_of(PLANS["latency"], tmp_path)


def test_devices_and_links_are_told_apart_whatever_their_names(tmp_path: Path) -> None:
    """A problem may call its devices anything; a link is known by its ends and not by an arrow."""
    text = json.dumps(PLANS["latency"]).replace("device_0", "a → b").replace("device_1", "a->b")
    page = page_of(json.loads(text), tmp_path)
    lanes = re.findall(r'<div class="lane( of-link)?">\s*<div class="name">(.*?)</div>', page)
    assert all(("swatch" in name) != bool(link) for link, name in lanes)
    assert {name.rpartition("</i>")[2] for link, name in lanes if not link} >= {"a → b", "a-&gt;b"}


def test_batches_and_overlap(tmp_path: Path) -> None:
    plan = PLANS["with notes"]
    text = page_of(plan, tmp_path)
    chosen = [line for line in text.splitlines() if ">chosen<" in line]
    assert len(chosen) == 1
    assert 'data-path="/answer/explain/batch/2/batch"' in chosen[0]
    assert text.count(">does not fit<") == 1
    for device, entry in plan["overlap"]["devices"].items():
        (label,) = re.findall(rf'aria-label="{device}: movable ([^"]*)"', text)
        movable, _, unmovable = label.partition("; unmovable ")
        assert _numbers(movable) == entry["movable"]
        assert _numbers(unmovable) == entry["unmovable"]


def test_losses(tmp_path: Path) -> None:
    plan = PLANS["with notes"]
    text = page_of(plan, tmp_path)
    lost = plan["survival"]["losses"][0]["device"]
    assert f"if {lost} is lost: 7.20 ms per token" in text
    assert 'data-path="/survival/losses/0/text"' in text
    assert 'data-path="/survival/mirrors/0/text"' in text
    assert "/survival/mirrors/0/memory_bytes" in check_figures(plan, Page(text).figures), (
        "in the bar of its holder"
    )
    assert "The loss of a device" in text
    assert "The loss of a device" not in page_of(PLANS["latency"], tmp_path)


def test_no_loss_to_survive_and_what_may_move(tmp_path: Path) -> None:
    plan = copy.deepcopy(PLANS["with notes"])
    plan["survival"] = {"losses": [], "text": "no loss to survive"}
    plan["overlap"]["texts"] = ["sub-module 7 may move from b to a"]
    text = page_of(plan, tmp_path)
    assert text.count("The loss of a device") == 1
    assert 'data-path="/survival/text"' in text
    assert 'data-path="/overlap/texts/0"' in text


def _numbers(text: str) -> list[int]:
    """The whole numbers that `0–3, 7` stands for."""
    ends = [part.split("–") for part in text.split(", ") if part != "none"]
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]


def test_names_are_text(tmp_path: Path) -> None:
    """Nothing in a plan becomes markup."""
    text = json.dumps(PLANS["latency"]).replace("device_0", "<b onclick=x>&amp;")
    page = page_of(json.loads(text), tmp_path)
    assert "<b onclick" not in page
    assert "&lt;b onclick=x&gt;&amp;amp;" in page


def _without(*names: str) -> Callable[[dict[str, Any]], object]:
    def change(plan: dict[str, Any]) -> None:
        for name in names[:-1]:
            plan = plan[int(name)] if isinstance(plan, list) else plan[name]
        del plan[names[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("predicted"), "damaged"),
        (lambda plan: plan.update(answer=None), "there is no plan in it"),
        (lambda plan: plan.update(format="partc-plan/9"), "the format is 'partc-plan/9'"),
        (_without("problem"), "there is no plan in it"),
        (lambda plan: plan["problem"].update(source="nobody"), "source"),
        (_without("predicted", "phases"), "damaged"),
        (_without("predicted", "memory"), "damaged"),
        (_without("answer", "assignment"), "not feasible"),
        (_without("predicted", "phases", "0", "latency_s"), "damaged"),
        (lambda plan: plan["predicted"].update(phases=[]), "damaged"),
        (lambda plan: plan.update(survival={"losses": [{"device": "x", "text": "y"}]}), "one of the devices"),
        (
            lambda plan: plan.update(
                survival={
                    "mirrors": [{"device": plan["problem"]["source"], "text": "y", "memory_bytes": "z"}]
                }
            ),
            r"survival.mirrors.0..memory_bytes",
        ),
        (lambda plan: plan["predicted"]["memory"][0].update(needed_bytes="x"), "damaged"),
        (lambda plan: plan["answer"]["explain"].update(shared=[3]), "expected a list of texts"),
        (lambda plan: plan["answer"]["explain"].update(best={"text": 3}), "answer.explain.best.text"),
    ],
)
def test_damaged_plans(change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path) -> None:
    plan = json.loads(json.dumps(PLANS["latency"]))
    change(plan)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    with pytest.raises(UserError, match=message) as caught:
        write_report(read_subject(file), tmp_path / "report.html")
    assert str(caught.value.where).startswith(str(file))
    assert list(tmp_path.iterdir()) == [file]


def test_guessed_tokens_have_figures_and_lanes(tmp_path: Path) -> None:
    problem = replace(make_problem(3, 12), drafts=Drafts(0.3), returns=0)
    plan = make_plan(problem)
    text = page_of(plan, tmp_path)
    check_figures(plan, Page(text).figures)
    assert "One request with guessed tokens" in text
    for each in plan["predicted"]["drafts"]:
        assert f'data-value="{json.dumps(each["token_s"])}"' in text
    for words in ("began with a guess, which was right", "was void", "began with a true token"):
        assert words in text
    without = page_of(make_plan(replace(problem, drafts=None)), tmp_path)
    assert "guessed tokens" not in without and "which was right" not in without


def test_the_steps_of_a_run_are_held_against_whole_steps(tmp_path: Path) -> None:
    plan = make_plan(replace(make_problem(3, 12), drafts=Drafts(0.5), returns=0))
    assert "×2.00" in page_of(plan, tmp_path, record_of(plan, requests=2, scale=2.0))
