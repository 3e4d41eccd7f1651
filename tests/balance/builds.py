"""A build for `null` that survives the loss of each of its devices.

It has six sub-modules, values that skip some of them, and two outputs.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from partc.bundle.writer import write_bundle
from partc.format.placement import stages_of
from partc.format.plan import Loss, Survival
from partc.ir.text import parse_module
from partc.pipeline.contract import Context
from partc.planner.exact.optimal import plan_optimal
from partc.planner.model.evaluate import evaluate
from partc.planner.model.plan_file import plan_file
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule
from passes.lower_target import LowerTarget
from passes.map_dependencies import MapDependencies
from passes.split_graph import SplitGraph

COMPILED = ("phone", "phone", "board", "board", "old", "old")
WITHOUT = {
    "board": ("phone", "phone", "phone", "phone", "old", "old"),
    "old": ("phone", "phone", "board", "board", "board", "board"),
}
TEXT = """partc-ir 1
model {"dims": {"batch": 2}, "name": "six", "task": "graph"}
graph six opset 24 {
  input %x: f32[batch, 8]
  submodule 0
  %a: f32[batch, 8] = Relu(%x)
  submodule 1
  %b: f32[batch, 8] = Tanh(%a)
  submodule 2
  %c: f32[batch, 8] = Relu(%b)
  submodule 3
  %d: f32[batch, 8] = Tanh(%c)
  submodule 4
  %e: f32[batch, 8] = Add(%d, %b)
  submodule 5
  %f: f32[batch, 8] = Add(%e, %x)
  output %d
  output %f
}
"""


def problem(memory: int = 6) -> Problem:
    """Devices that differ in speed, with room for so many sub-modules each."""
    names = ("phone", "board", "old")
    seconds = {"phone": 0.002, "board": 0.001, "old": 0.004}
    edges = [Edge(j, j + 1, 64.0, "abcde"[j]) for j in range(5)]
    return Problem(
        "latency",
        "phone",
        tuple(Device(name, memory) for name in names),
        tuple(Submodule(1.0, seconds) for _ in range(6)),
        tuple(Link(a, b, 1e6, 0.0005) for a in names for b in names if a != b),
        (*edges, Edge(1, 4, 64.0, "b"), Edge(0, 5, 64.0, "x")),
        64.0,
    )


def write_build(folder: Path, of: Problem | None = None) -> Path:
    """The folder of the build, compiled by hand as far as the plan is concerned."""
    asked = of or problem()
    module = parse_module(TEXT)
    stages = stages_of(COMPILED)
    plan = plan_file(asked, replace(plan_optimal(asked), stages=stages), evaluate(asked, stages))
    losses = tuple(Loss(device=name, assignment=after) for name, after in WITHOUT.items())
    layers = tuple((j // 2, j // 2) for j in range(6))
    for step in (MapDependencies(), SplitGraph(), LowerTarget()):
        if isinstance(step, SplitGraph):
            module.plan = replace(plan, survival=Survival(losses=losses), layers=layers)
        step.apply(module, Context())
    write_bundle(module, folder)
    return folder
