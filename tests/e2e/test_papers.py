"""The papers reproduced: the README files show what is computed, and nothing is ahead of the optimum."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from examples.papers.lingualinked.everyone import best_with_everyone
from partc.format.placement import stages_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule

pytestmark = pytest.mark.in_turns(3, whole=True)

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
EDGESHARD = PAPERS / "edgeshard" / "README.md"
LINGUALINKED = PAPERS / "lingualinked" / "README.md"
GALAXY = PAPERS / "galaxy" / "README.md"
OURS = "partc, optimal"


def _tables(readme: Path) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Heading, columns and rows of every table under a heading of its own."""
    heading, columns, rows = "", list[str](), list[list[str]]()
    for line in [*readme.read_text().splitlines(), "#"]:
        if line.startswith("#"):
            if rows:
                yield heading, columns, rows
            heading, columns, rows = line.lstrip("# "), [], []
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            columns, rows = (columns, [*rows, cells]) if columns else (cells, rows)


def _number(cell: str) -> float | None:
    return None if cell in ("OOM", "–") else float(cell.replace(",", ""))


def _assert_best(columns: list[str], rows: list[list[str]], column: int, best: float | None) -> None:
    """`best` is at least as good as the column in every row, as far as printed digits go."""
    for row in rows:
        value = _number(row[column])
        if value is not None:
            assert best is not None, row
            assert best <= value if "ms/token" in columns[column] else best >= value, (row, columns[column])


def test_edgeshard_is_out_of_memory_where_the_paper_is() -> None:
    tables = [(columns, rows) for heading, columns, rows in _tables(EDGESHARD) if "Table IV" in heading]
    assert len(tables) == 3
    theirs = {(row[0], row[k + 1]): row[k] for columns, rows in tables for row in rows for k in (1, 4)}
    assert any(paper == "OOM" for _, paper in theirs)
    assert all(ours == "OOM" for (_, paper), ours in theirs.items() if paper == "OOM")


def test_edgeshard_has_nothing_ahead_of_the_optimum() -> None:
    compared = 0
    for heading, columns, rows in _tables(EDGESHARD):
        ours = next((row for row in rows if row[0] == OURS), None)
        if ours is None or "plans" in heading:
            continue
        marked = [k for k, name in enumerate(columns) if name in ("ms/token", "tokens/s", "ring full")]
        if "by Mbit/s" in heading:
            marked = list(range(1, len(columns)))
            columns = [heading] * len(columns)
        for column in marked:
            _assert_best(columns, rows, column, _number(ours[column]))
            compared += 1
    assert compared == 3 * 3 + 3 * 2 * 8


def test_lingualinked_has_nothing_ahead_of_the_optimum() -> None:
    tables = list(_tables(LINGUALINKED))
    assert len(tables) == 2
    for _, columns, rows in tables:
        assert len(rows) == 6
        for row in rows:
            even, everyone, best = (
                _number(row[columns.index(name)]) for name in ("even", "all at work", "optimal")
            )
            programme = _number(row[columns.index("Eq. 5")])
            assert even is not None and everyone is not None and best is not None and programme is not None
            assert best <= everyone <= even and best <= programme


def _chain(rng: random.Random) -> Problem:
    names = ("a", "b", "c")
    return Problem(
        objective="latency",
        source="a",
        devices=tuple(Device(name, rng.choice((3, 9))) for name in names),
        submodules=tuple(Submodule(1, {name: rng.random() for name in names}) for _ in range(6)),
        links=tuple(
            Link(x, y, rng.uniform(1, 50), rng.random() / 10) for x in names for y in names if x != y
        ),
        edges=tuple(Edge(j, j + 1, rng.randint(1, 9)) for j in range(5)),
        return_bytes=2,
    )


def test_all_phones_at_work_is_the_best_of_all_such_plans() -> None:
    rng = random.Random(5)
    for _ in range(30):
        problem = _chain(rng)
        values = [
            found.value
            for order in permutations(("b", "c"))
            for first in range(1, 5)
            for second in range(first + 1, 6)
            if (plan := ("a",) * first + order[:1] * (second - first) + order[1:] * (6 - second))
            and (found := evaluate(problem, stages_of(plan))).value is not None
        ]
        best = best_with_everyone(problem)
        assert len(stages_of(best)) == 3
        assert evaluate(problem, stages_of(best)).value == pytest.approx(min(filter(None, values)), rel=1e-12)


def _assert_shown(text: str, readme: Path) -> None:
    """Every figure; of plans that are equally good it does not matter which one is shown."""
    shown = set(readme.read_text().splitlines())
    parts = [part for part in text.split("### ") if "plans (" not in part.partition("\n")[0]]
    missing = [line for part in parts for line in part.splitlines()[1:] if line not in shown]
    assert not missing, f"not in {readme.name}; paste what run.py prints: {missing}"


def _check_edgeshard(model: str) -> None:
    from examples.papers.edgeshard.run import reproduce

    results = reproduce(model, with_sweep=False)
    _assert_shown(results.to_markdown(), EDGESHARD)
    rings = [item for item in results.pipelined.values() if item is not None]
    assert rings
    for item in rings:
        # Filling and draining cost a little of what the formula for a ring that runs on promises.
        assert item.bubbles <= item.no_bubbles * (1 + 1e-9) <= item.throughput.tokens_per_s * (1 + 1e-6)


@pytest.mark.hf
def test_llama_2_7b_is_as_shown() -> None:
    _check_edgeshard("llama-2-7b")


@pytest.mark.hf
@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama-2-13b", "llama-2-70b"])
def test_larger_llamas_are_as_shown(model: str) -> None:
    _check_edgeshard(model)


@pytest.mark.hf
@pytest.mark.slow
@pytest.mark.parametrize("model", ["bloom-1b1", "bloom-1b7", "bloom-3b"])
def test_bloom_is_as_shown(model: str) -> None:
    from examples.papers.lingualinked.run import HOW, cells, load, to_markdown

    module = load(model)
    for how in HOW:
        rows = [line for line in to_markdown(how, cells(model, module, how)).splitlines() if "BLOOM" in line]
        assert len(rows) == 2
        _assert_shown("\n".join(rows), LINGUALINKED)


def test_galaxy_is_as_shown() -> None:
    from examples.papers.galaxy.run import reproduce

    _assert_shown(reproduce().to_markdown(), GALAXY)


def test_galaxy_is_out_of_memory_where_the_paper_is() -> None:
    (fitted, unfitted) = (rows for heading, _, rows in _tables(GALAXY) if heading.startswith("Table IV"))
    assert len(fitted) == len(unfitted) == 11
    pairs = [(row[k], row[k + 1]) for row in fitted + unfitted for k in (2, 4)]
    assert all((ours == "OOM") == (paper == "OOM") for ours, paper in pairs)
    assert 0 < sum(paper == "OOM" for _, paper in pairs) < len(pairs)
    # Galaxy is ahead of both wherever they fit.
    assert all(float(ours) > 1 for ours, _ in pairs if ours != "OOM")


@pytest.mark.hf
def test_int8_holds_and_reads_a_quarter(tmp_path: Path) -> None:
    from examples.papers.lingualinked.run import problem_of
    from examples.papers.planning import trace

    model = tmp_path / "bloom.yaml"
    model.write_text("""\
model: {config: {model_type: bloom, vocab_size: 4000, hidden_size: 256, n_layer: 2, n_head: 4}, seed: 0}
max_sequence: 70
max_requests: 1
workload: {prompt: 20, generate: 50}
""")
    module = trace(model)
    full, small = (problem_of(module, precision, "caches") for precision in ("full", "int8"))
    whole = range(len(full.submodules))
    assert 0.25 < small.memory_of(whole) / full.memory_of(whole) < 0.35  # caches and activations stay
    decode = [phase.time_s for problem in (full, small) for phase in problem.phases if phase.name == "decode"]
    seconds = [sum(times["pixel_1"] for times in time_s) for time_s in decode]
    assert 0.25 < seconds[1] / seconds[0] < 0.35
    (step,) = problem_of(module, "full", "recomputing").phases
    assert step.return_bytes == 4 * 4000
    assert step.edges[0].bytes == (20 + 25) * 256 * 4


@pytest.mark.hf
def test_figures_are_the_same_for_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from examples.papers.edgeshard.experiments import Row
    from examples.papers.edgeshard.figures import draw
    from examples.papers.edgeshard.methods import Latency

    rows = [Row(OURS, Latency(("orin_1",), 0.1), []), Row("Edge-Solo", None, [])]
    for folder in ("a", "b"):
        draw({"llama-2-7b": {1: rows, 50: rows}}, tmp_path / folder)
    for name in ("fig7_latency.svg", "fig8_throughput.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert OURS in (tmp_path / "a" / "fig7_latency.svg").read_text()
