"""The meaning of `place`, `pin` and `ban` for sub-modules; the messages are golden cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.devices import DevicesConfig, load_devices
from partc.config.placement import Range
from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.ir.graph import Node, Submodule, Value
from partc.planner.model.layers import Shape, shape_of, spans_of
from partc.planner.model.problem import Device, Edge, Link, Problem
from partc.planner.model.problem import Submodule as Part
from partc.planner.model.rules import blame, restrict, rules_of
from partc.planner.placed_by_user import plan_placed, stages_placed
from partc.planner.solve import solve


def submodules(*scopes: str) -> list[Submodule]:
    """One sub-module for each text: the scopes of its nodes."""
    return [
        Submodule(
            j, [Node("Relu", [], [Value(f"{j}.{i}")], scope=scope) for i, scope in enumerate(text.split())]
        )
        for j, text in enumerate(scopes)
    ]


def layers(first: int, last: int) -> Range:
    return Range("layers", first, last, "here")


def devices(folder: Path, extra: str) -> DevicesConfig:
    path = folder / "devices.yaml"
    figures = 'target: "null", flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GiB'
    lines = "".join(f"  {name}: {{{figures}}}\n" for name in "abc")
    path.write_text(f"source: a\ndevices:\n{lines}{extra}")
    return load_devices(path)


DECODER = (
    "model.embed_tokens",
    "model.layers.0.mlp",
    "model.layers.0",
    "",
    "model.layers.1.experts.7.up",
    "lm_head",
)


def test_layers_are_the_first_numbers_and_the_rest_goes_with_the_nearest() -> None:
    assert shape_of(submodules(*DECODER)) == Shape(6, ((0, 0), (0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    assert shape_of(submodules("h.3.a h.4.b", "x", "h.5")) == Shape(3, ((3, 4), (4, 4), (5, 5)))


@pytest.mark.parametrize("scopes", [("a", "b"), ("h.1", "h.0"), ("h.0 h.2", "h.1")])
def test_layers_that_cannot_be_told(scopes: tuple[str, ...]) -> None:
    shape = shape_of(submodules(*scopes))
    assert shape.layers is None
    with pytest.raises(PlanError, match="are not known") as caught:
        shape.indices(layers(0, 0))
    assert "submodules 0-1" in str(caught.value.hint)
    assert shape.indices(Range("submodules", 1, 1, "")) == {1}


def test_ranges() -> None:
    shape = shape_of(submodules(*DECODER))
    assert shape.indices(layers(0, 0)) == {0, 1, 2, 3}
    assert shape.indices(layers(1, 1)) == {4, 5}
    assert shape.indices(layers(0, 1)) == set(range(6))
    merged = shape_of(submodules("h.0", "h.1 h.2", "h.2", "h.3"))
    assert merged.indices(layers(1, 2)) == {1, 2}
    with pytest.raises(PlanError, match="layers 1 and 2 lie in one sub-module") as caught:
        merged.indices(layers(0, 1))
    assert caught.value.hint == "a range may end after these layers: 0, 2, 3"
    with pytest.raises(PlanError, match="layers 1 and 2"):
        merged.indices(layers(2, 3))


def test_sub_modules_are_named_as_layers_where_they_are_whole_ones() -> None:
    shape = shape_of(submodules("h.0", "h.0", "h.1", "h.2"))
    assert shape.describe([0, 1, 2]) == "layers 0-1"
    assert shape.describe([0, 1, 3]) == "layer 0, layer 2"
    assert shape.describe([1, 2]) == "submodules 1-2"
    assert spans_of([5, 1, 2, 4, 9]) == [(1, 2), (4, 5), (9, 9)]


def test_rules_take_times_away(tmp_path: Path) -> None:
    shape = shape_of(submodules("h.0", "h.1", "h.2"))
    rules = rules_of(devices(tmp_path, "pin: {b: layer 2}\nban: {c: [layer 0, submodules 1]}\n"), shape)
    restricted = restrict(problem(3), rules)
    assert [sorted(part.time_s) for part in restricted.submodules] == [["a", "b"], ["a", "b"], ["b"]]
    assert restrict(problem(3), ()) is not restricted


def problem(count: int, memory: float = 1e9) -> Problem:
    times = {"a": 1.0, "b": 0.5, "c": 2.0}
    return Problem(
        "latency", "a", tuple(Device(name, memory) for name in times),
        tuple(Part(10, dict(times)) for _ in range(count)),
        tuple(Link(x, y, 1000.0, 0.1) for x in times for y in times if x != y),
        tuple(Edge(j, j + 1, 1) for j in range(count - 1)), 1,
    )  # fmt: skip


def test_a_place_is_an_assignment(tmp_path: Path) -> None:
    shape = shape_of(submodules("h.0", "h.1", "h.2", "h.3"))
    config = devices(tmp_path, "place: {a: [layer 0, layers 2-3], b: submodule 1}\n")
    assert stages_placed(config, shape, ()) == stages_of("abaa")


def test_a_placed_plan_is_compared_with_the_best() -> None:
    plan = plan_placed(problem(4), stages_of(("a", "a", "b", "b")), Shape(4, None))
    # 2 + 1 s and two messages; best is one on a, three on b.
    assert plan.value == pytest.approx(3.202) and plan.method == "placed by devices.yaml"
    assert plan.bound == pytest.approx(2.702)
    assert plan.gap == pytest.approx(0.5 / 3.202)


def test_a_place_that_does_not_fit_says_what_would() -> None:
    shape = shape_of(submodules("h.0", "h.1", "h.2", "h.3"))
    with pytest.raises(PlanError) as caught:
        plan_placed(problem(4, memory=20), stages_of(("a", "b", "b", "b")), shape, "devices.yaml")
    assert caught.value.message == (
        "`place` does not fit: b needs 30 B and has 20 B; of layers 1-3 b could hold layers 1-2 (20 B)"
    )
    assert "this fits: `place: {a: layers 0-1, b: layers 2-3}`" in str(caught.value.hint)
    with pytest.raises(PlanError, match="b has no room for any of layer 1") as caught:
        plan_placed(problem(2, memory=9), stages_of(("a", "b")), shape_of(submodules("h.0", "h.1")))
    assert "no other place fits either" in str(caught.value.hint)


def test_the_rule_that_leaves_no_plan_is_named(tmp_path: Path) -> None:
    shape = shape_of(submodules("h.0", "h.1", "h.2"))
    whole = problem(3, memory=10)

    def words(extra: str) -> str:
        rules = rules_of(devices(tmp_path, extra), shape)
        return blame(whole, rules, "why", lambda one: solve(one, explained=False).feasible).text

    assert words("ban: {c: layers 1-2}\n") == (
        "without `ban: {c: layers 1-2}` there would be a plan; with it: why"
    )
    assert words("ban: {c: layer 1, b: layer 1}\n") == (
        "without `ban: {c: layer 1}` or `ban: {b: layer 1}` there would be a plan; with them: why"
    )
    assert words("ban: {c: [layer 1, layers 1-2], b: [layer 1, layer 1]}\n").startswith(
        "there would be a plan without the pins and bans (`ban: {c: layer 1}`, "
    )
    whole = problem(4, memory=10)
    assert words("pin: {b: layer 1}\n") == "why"
