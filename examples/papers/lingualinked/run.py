"""LinguaLinked's Fig. 4 from config alone: `python -m examples.papers.lingualinked.run`.

Prints the tables of README.md; `--json` prints the same as data.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from examples.papers.lingualinked.everyone import best_with_everyone
from examples.papers.planning import priced, trace
from examples.papers.tables import figure, markdown, ratio, words
from partc.format.placement import stages_of
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Problem
from partc.planner.solve import solve

HERE = Path(__file__).parent
MODELS: Mapping[str, str] = {"bloom-1b1": "BLOOM 1.1b", "bloom-1b7": "BLOOM 1.7b", "bloom-3b": "BLOOM 3b"}
"""Name of the model.yaml -> how the paper calls it."""
PAPER: Mapping[tuple[str, str], float] = {
    ("bloom-1b1", "int8"): 1.56, ("bloom-1b7", "int8"): 1.55, ("bloom-3b", "int8"): 1.61,
    ("bloom-1b1", "full"): 1.11, ("bloom-1b7", "full"): 1.25, ("bloom-3b", "full"): 1.32,
}  # fmt: skip
"""Section 4.2: throughput of the optimised assignment over that of the even one."""
PHONES: Mapping[str, str] = {"int8": "2 Pixel, 1 Cubot", "full": "3 Pixel, 1 Cubot"}
"""Precision -> what the model runs on; the file is devices-<precision>.yaml."""
HOW: Mapping[str, str] = {
    "caches": "with KV caches, as partc runs it",
    "recomputing": "without caches: the whole sequence again for every token, logits back to the source",
}
"""How tokens are generated; section 4.3 of the paper points to the second."""
Assignment = tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One model in one precision; seconds per token."""

    model: str
    precision: str
    even_s: float
    everyone_s: float
    """The best plan in which every phone has a part."""
    eq5_s: float
    """The paper's programme."""
    optimal_s: float
    optimal_plan: Assignment


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers.lingualinked.run", description=__doc__)
    parser.add_argument(
        "models", nargs="*", default=list(MODELS), help=f"{', '.join(MODELS)}; all by default"
    )
    parser.add_argument("--json", action="store_true", help="print data instead of tables")
    options = parser.parse_args()
    if unknown := sorted(set(options.models) - set(MODELS)):
        parser.error(f"unknown model {unknown[0]}: choose from {', '.join(MODELS)}")
    modules = {model: load(model) for model in options.models}
    results = {
        how: [cell for model, module in modules.items() for cell in cells(model, module, how)] for how in HOW
    }
    if options.json:
        print(json.dumps({how: [asdict(cell) for cell in row] for how, row in results.items()}, indent=1))
        return
    for how, row in results.items():
        print(to_markdown(how, row))


def load(model: str) -> Module:
    """The traced model of `model`.yaml."""
    return trace(HERE / f"{model}.yaml")


def cells(model: str, module: Module, how: str) -> list[Cell]:
    """The model in both precisions; asserts that nothing with one part for each phone is ahead of the optimum."""
    return [_cell(model, precision, problem_of(module, precision, how)) for precision in PHONES]


def _cell(model: str, precision: str, problem: Problem) -> Cell:
    best = solve(problem, explained=False)
    assert best.assignment is not None and best.value is not None and best.gap == 0, "not proven"
    even = solve(problem, "even", explained=False)
    eq5 = solve(problem, "lingualinked", explained=False)
    everyone = evaluate(problem, stages_of(best_with_everyone(problem))).value
    assert even.value is not None and eq5.value is not None and everyone is not None, "does not fit"
    assert best.value <= min(even.value, everyone) * (1 + 1e-9), "a baseline is ahead"
    return Cell(model, precision, even.value, everyone, eq5.value, best.value, best.assignment)


def problem_of(module: Module, precision: str, how: str) -> Problem:
    """The latency problem of Fig. 4."""
    sized = quantized(module) if precision == "int8" else module
    devices = HERE / f"devices-{precision}.yaml"
    if how == "caches":
        return priced(sized, devices)
    # One step makes a token from all that precedes it: on average the prompt and half of the answer.
    info = replace(sized.info, prompt=sized.info.prompt + sized.info.generate // 2, generate=1)
    problem = priced(replace(sized, info=info), devices)
    (step,) = (phase for phase in problem.phases if phase.name == "prefill")
    assert info.vocab_size is not None
    return replace(problem, phases=(replace(step, return_bytes=4 * info.vocab_size),))


def quantized(module: Module) -> Module:
    """The module with its matrices in int8, for planning: a quarter of the bytes to hold and to read.

    That is what dynamic quantisation stores; activations and caches stay in float32, and operations are priced
    at the devices' float32 rates, for which the paper gives no int8 figures.
    """
    sized = parse_module(print_module(module))  # a copy
    for weight in sized.graph.weights():
        if weight.shape is not None and len(weight.shape) > 1:
            weight.dtype = "i8"
    return sized


def to_markdown(how: str, cells: Sequence[Cell]) -> str:
    """One table of README.md; figures in ms per token, speed-ups over the even shares."""
    columns = (
        "model", "precision", "phones", "even", "all at work", "Eq. 5", "optimal",
        "even / all at work", "even / optimal", "paper", "optimal plan",
    )  # fmt: skip
    return markdown(f"ms/token, {HOW[how]}", columns, [_line(cell) for cell in cells])


def _line(cell: Cell) -> list[str]:
    times = (cell.even_s, cell.everyone_s, cell.eq5_s, cell.optimal_s)
    return [
        MODELS[cell.model],
        "int8" if cell.precision == "int8" else "float32",
        PHONES[cell.precision],
        *(figure(seconds * 1e3, 1) for seconds in times),
        ratio(cell.even_s, cell.everyone_s),
        ratio(cell.even_s, cell.optimal_s),
        f"{PAPER[cell.model, cell.precision]:.2f}",
        words(cell.optimal_plan),
    ]


if __name__ == "__main__":
    main()
