"""Makes the record of a case: a model through the pipeline, a build, a ring."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from partc.api.compiling import Compilation, to_compile, to_plan
from partc.api.pipelines import Following
from partc.api.ring import Ring
from partc.config.model import load_model_config
from partc.differences.builds import build_record
from partc.differences.matching import structure_digest
from partc.differences.plans import plan_record
from partc.differences.weights import weight_record
from partc.errors import ConfigError, RunError
from partc.golden.config import Case
from partc.golden.origin import origin_of
from partc.golden.record import Record
from partc.golden.tokens import answers
from partc.ir.graph import Module
from partc.ir.text import print_module
from partc.pipeline.manager import PassRun
from partc.scratch import scratch_folder
from partc.verifier.check import verify_build

_DIGITS = 16
_FIGURES = 4
"""Digits of a figure of the cost of quantisation that are kept."""


def make_record(case: Case, following: Following) -> Record:
    """What partc makes of a case now; a build lies in a temporary folder until its parts are known.

    Raises:
        UserError: the case cannot be compiled.
        RunError: its ring failed.
    """
    with scratch_folder("golden") as folder:
        build = folder / "build"
        given = _given(case, build)
        notes = _Notes(case)
        module = given.run(
            replace(following, imported=notes.imported, observers=[*following.observers, notes.observe])
        )
        assert module.plan is not None, "partition-graph leaves a plan or raises"
        return Record(
            origin_of(case, load_model_config(case.model), given.devices, notes.steps),
            notes.graphs if "graph" in case.keep else None,
            notes.weights if "weights" in case.keep else None,
            plan_record(module.plan, times=case.times) if "plan" in case.keep else None,
            build_record(build) if "bundle" in case.keep else None,
            _answers(case, build, following) if "tokens" in case.keep else None,
            _cost(case, build, following) if "cost" in case.keep else None,
        )


def _given(case: Case, build: Path) -> Compilation:
    if case.is_built:
        return to_compile(case.model, case.devices, build, strategy=case.strategy, cut_rule=case.cut_rule)
    return to_plan(case.model, case.devices, strategy=case.strategy, cut_rule=case.cut_rule)


class _Notes:
    """What is seen of a module on its way."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.steps: dict[str, str] = {}
        """Step → a digest of the graph that it left; a pass that runs twice is `canonicalize (2)`, too."""
        self.graphs: dict[str, str] = {}
        self.weights: dict[str, str] = {}

    def imported(self, module: Module) -> None:
        """Note the module before the first pass."""
        self.steps["import"] = structure_digest(module.graph)[:_DIGITS]
        if "weights" in self._case.keep:
            self.weights = weight_record(module)

    def observe(self, run: PassRun, module: Module) -> None:
        """Note what a pass left."""
        times = sum(name.partition(" (")[0] == run.name for name in self.steps)
        name = f"{run.name} ({times + 1})" if times else run.name
        if module.parts is None:
            self.steps[name] = structure_digest(module.graph)[:_DIGITS]
        if run.name in self._case.after:
            self.graphs[run.name] = _graph_text(module)


def _graph_text(module: Module) -> str:
    """The graph alone; where its weights lie is no part of it."""
    seen = Module(replace(module.info, folder="."), module.graph)
    seen.candidates, seen.submodules = module.candidates, module.submodules
    return print_module(seen)


def _answers(case: Case, build: Path, following: Following) -> list[dict[str, Any]]:
    following.step("generate")
    with Ring(build, runner="python", balance=False) as ring:
        if not ring.build.model.generates:
            raise ConfigError(
                f"a model for {ring.build.model.task} gives no tokens",
                where=f"golden.yaml: cases.{case.name}.keep",
                hint="leave tokens out",
            )
        try:
            return answers(case, ring)
        except RunError as error:
            if error.cause != "input":
                raise
            where = f"golden.yaml: cases.{case.name}.prompts"
            raise ConfigError(error.message, where=where, hint=error.hint) from error


def _cost(case: Case, build: Path, following: Following) -> dict[str, Any]:
    following.step("measure the cost of quantisation")
    report = verify_build(build, tokens=1, text=case.text, progress=following.progress)
    if report.cost is None:
        raise ConfigError(
            "there is no cost to keep: the model is not quantised, or of a task for which none is measured",
            where=f"golden.yaml: cases.{case.name}.keep",
            hint="leave cost out; for text, `quantize: int8` or int4 in model.yaml has one",
        )
    return {key: _rounded(value) for key, value in asdict(report.cost).items() if value is not None}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_FIGURES}g}") if isinstance(value, float) else value
