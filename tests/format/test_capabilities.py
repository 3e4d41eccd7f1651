"""Capabilities that a ring does not have, by facts of builds and of runners."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partc.format.capabilities import CAPABILITIES, Facts, facts_of, missing, of_ring
from partc.format.names import BUILD_FILE
from partc.format.role import read_roles
from partc.format.status import DeviceStatus, RingStatus
from tests.runtime.bundles import language_model, reseal

ALL = Facts(
    source="laptop",
    ring=("laptop", "board"),
    generates=True,
    max_requests=4,
    engines={"laptop": "plan", "board": "plan"},
    step_requests=4,
    reuses=True,
    drafts=True,
    step_tokens=8,
    movable=True,
    survives=("board",),
    limited=("board",),
)


def said(facts: Facts) -> dict[str, str]:
    return {one.name: one.sentence for one in missing(facts)}


def test_a_ring_that_can_do_all_says_nothing() -> None:
    assert said(ALL) == {}


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        (
            {"engines": {"laptop": "ort", "board": "ort"}},
            "shared-steps",
            "requests take turns: `ort` on laptop, board computes one request at a time",
        ),
        ({"keeps": True, "step_requests": 1}, "shared-steps", "the first step"),
        ({"uniform": True, "step_requests": 1}, "shared-steps", "one position"),
        ({"step_requests": 1}, "shared-steps", "one request only"),
        ({"alone": ("board",)}, "shared-steps", "the runner of board takes no shared steps"),
        ({"reuses": False, "rewrites": True}, "prompt-reuse", "rewrite states"),
        ({"reuses": False, "keeps": True}, "prompt-reuse", "keeps"),
        ({"drafts": False, "rewrites": True}, "drafts", "no tokens are guessed: its steps rewrite states"),
        ({"drafts": False}, "drafts", "model.yaml has `drafts: off`"),
        ({"survives": ()}, "survival", "a loss of board stops the ring"),
        (
            {"ring": ("laptop", "board", "old")},
            "survival",
            "a loss of old stops the ring until it is back: the others cannot",
        ),
        ({"groups": True}, "balancing", "nothing balances: devices share stages"),
        ({"movable": False}, "balancing", "`overlap`"),
        ({"movable": False}, "limits", "limits of board"),
    ],
)
def test_reasons(changes: dict[str, Any], name: str, words: str) -> None:
    assert words in said(replace(ALL, **changes))[name]


def test_what_does_not_matter_is_not_said() -> None:
    alone = replace(ALL, ring=("laptop",), engines={"laptop": "plan"}, survives=(), limited=(), movable=False)
    assert said(replace(alone, max_requests=1, step_requests=1)) == {}
    assert "`target: tvm` computes several" in said(replace(alone, step_tokens=1))["drafts"]
    encoder = replace(ALL, generates=False, reuses=False, step_requests=1)
    assert said(encoder) == {}


def test_one_device_that_computes_rows_at_once_is_enough() -> None:
    """The others compute them one after the other, and lose nothing."""
    assert "shared-steps" not in said(replace(ALL, engines={"laptop": "plan", "board": "ort"}))


def test_every_sentence_is_one_line() -> None:
    worst = replace(
        ALL,
        engines={"board": "ort"},
        reuses=False,
        drafts=False,
        survives=(),
        movable=False,
        step_requests=1,
    )
    assert set(said(worst)) == set(CAPABILITIES)
    assert all(sentence.isprintable() and len(sentence) <= 140 for sentence in said(worst).values())


def test_the_facts_of_a_build(tmp_path: Path) -> None:
    build = language_model("null").write(tmp_path / "build")
    reseal(
        build / "devices" / "b" / BUILD_FILE,
        limits={"battery": 0.3, "temperature_c": None, "memory_bytes": None},
    )
    facts = facts_of(read_roles(build))
    assert (facts.source, tuple(facts.ring), facts.generates) == ("a", ("a", "b", "c"), True)
    assert facts.engines == {"a": "null", "b": "null", "c": "null"}
    assert (list(facts.limited), facts.movable, facts.groups) == (["b"], False, False)


def test_what_the_source_tells_of_runners() -> None:
    devices = (
        DeviceStatus(device="laptop", submodules=((0, 4),), is_present=True, shares=True),
        DeviceStatus(device="board", submodules=((5, 9),), is_present=True),
        DeviceStatus(device="spare", is_present=True),
    )
    facts = of_ring(ALL, RingStatus(epoch=0, placement="p", devices=devices))
    assert list(facts.alone) == ["board"]
    assert "board" in said(facts)["shared-steps"]
