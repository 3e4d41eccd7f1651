"""The specification `split`: programs that send every value that a part needs, and run the part as it is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from partc.errors import InternalError
from partc.format.plan import PlanFile
from partc.format.program import parse_program, print_program
from partc.ir.graph import Input, Module, Part
from partc.ir.verify import verify
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from tests.passes.models import decoder


def split(*names: str) -> Module:
    """A decoder on three devices, or on these, in this order."""
    module = decoder("llama")
    run_passes(module, load_passes("find-cuts,form-submodules,coarsen-submodules,map-dependencies"))
    names = names or ("phone", "board", "old")
    count = len(module.submodules or ())
    module.plan = PlanFile.from_json(
        {"answer": {"assignment": [names[i * len(names) // count] for i in range(count)]}}
    )
    run_passes(module, load_passes("split-graph"))
    return module


def edited(device: str, change: Callable[[list[str]], list[str]], *names: str) -> Module:
    """The module with the program `decode` of one device changed."""
    module = split(*names)
    (part,) = [part for part in module.parts or () if part.device == device]
    rewrite(part, change)
    return module


def rewrite(part: Part, change: Callable[[list[str]], list[str]], phase: str = "decode") -> None:
    lines = print_program(part.programs[phase]).splitlines()
    part.programs[phase] = parse_program("\n".join(change(lines)))


def without(*words: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line for line in lines if not line.startswith(words)]


def test_what_split_graph_makes_holds() -> None:
    verify(split(), "split")


@pytest.mark.parametrize(
    ("device", "change", "message"),
    [
        ("phone", without("recv"), "old sends token to phone, which does not wait"),
        ("phone", without("send"), "board waits for .* from phone, which does not send"),
        ("board", without("recv"), "phone sends .* to board, which does not wait"),
        ("board", without("run"), "do not run part_1 once"),
        (
            "board",
            lambda lines: [*lines, lines[-1]],
            "old waits for .* from board, which does not send just that, once",
        ),
        (
            "board",
            lambda lines: [line.replace("part_1", "part_0") for line in lines],
            "do not run part_0 once",
        ),
        ("board", lambda lines: [lines[1], lines[0], *lines[2:]], "is neither given, made nor received"),
        ("old", without("sample"), "'token' is neither given, made nor received"),
        ("phone", lambda lines: [*lines, "emit logits"], "'logits' is neither given, made nor received"),
        (
            "board",
            lambda lines: ["recv input_ids from phone", *lines],
            "board waits for .* from phone, which does not send just that, once",
        ),
    ],
)
def test_programs_that_do_not_fit(
    device: str, change: Callable[[list[str]], list[str]], message: str
) -> None:
    with pytest.raises(InternalError, match=message):
        verify(edited(device, change), "split")


RETURNING = ("phone", "board", "phone", "board")


@pytest.mark.parametrize(
    ("device", "change", "message"),
    [
        ("phone", without("run part_0"), "do not run part_0 once"),
        (
            "board",
            lambda lines: [lines[3], *lines[:3], *lines[4:]],
            "phone waits for ever: `recv .* from board`",
        ),
    ],
)
def test_programs_that_do_not_come_back_as_they_should(
    device: str, change: Callable[[list[str]], list[str]], message: str
) -> None:
    verify(split(*RETURNING), "split")
    with pytest.raises(InternalError, match=message):
        verify(edited(device, change, *RETURNING), "split")


def test_no_device_is_sent_a_value_twice() -> None:
    module = split(*RETURNING)
    for part in module.parts or ():
        rewrite(part, lambda lines: [re.sub("(send|recv) last", r"\1 last, l0.mid", line) for line in lines])
    with pytest.raises(InternalError, match=r"board is sent 'l0.mid' 2 times"):
        verify(module, "split")


def test_a_device_has_one_part() -> None:
    module = split()
    assert module.parts is not None
    module.parts[2].device = "phone"
    with pytest.raises(InternalError, match="phone has two parts"):
        verify(module, "split")


def test_programs_without_any_message() -> None:
    module = split()
    for part in module.parts or ():
        for phase in part.programs:
            rewrite(part, without("recv", "send"), phase)
    with pytest.raises(InternalError, match="neither given, made nor received") as error:
        verify(module, "split")
    assert error.value.where == "program prefill of phone"


def test_every_part_has_every_phase() -> None:
    module = split()
    assert module.parts is not None
    del module.parts[1].programs["decode"]
    with pytest.raises(InternalError, match="there is none") as error:
        verify(module, "split")
    assert error.value.where == "program decode of board"


def test_graph_inputs_are_on_the_source_alone() -> None:
    module = split()
    for part in module.parts or ():
        if part.device == "board":
            part.graphs[0].inputs.append(Input("input_ids", "i64", ("batch", "sequence")))
            rewrite(
                part, lambda lines: [line.replace(") ->", ", input_ids) ->") for line in lines], "prefill"
            )
    with pytest.raises(InternalError, match="'input_ids' is neither given, made nor received"):
        verify(module, "split")
