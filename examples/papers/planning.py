"""Helpers of the reproductions: a model traced once, priced at any batch, planned on many sets of devices.

Nothing here needs weights: sizes, operations and bytes follow from the config alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from partc.config.devices import load_devices
from partc.config.model import load_model_config
from partc.frontend import load_module
from partc.ir.graph import Module
from partc.pipeline.default import PHASES
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.planner.model.change import with_links
from partc.planner.model.problem import Link, Problem
from passes.partition_graph import problem_of
from passes.profile_submodules import profile_submodules

MEASURING = ("simplify", "cut", "measure")
"""The phases of the pipeline up to the profile: all that does not depend on the devices."""
SETTINGS = {"coarsen-submodules": "coarsen-submodules{max_submodules=256}"}
"""Half layers even of Llama-2-70B (162), so that equal numbers of sub-modules are equal shares."""


def trace(model: Path) -> Module:
    """The profiled sub-modules of a model.yaml; half a minute for Llama-2-7B, under 1 GB."""
    module = load_module(load_model_config(model))
    names = [name for phase in MEASURING for name in PHASES[phase]]
    run_passes(module, [load_pass(SETTINGS.get(name, name)) for name in names])
    return module


def priced(module: Module, devices: Path, batch: int = 1, requests: int = 1) -> Problem:
    """The planning problem for steps of `batch` sequences, with room for the caches of `requests` such batches.

    A step reads every weight once, whatever the batch; operations, activations, caches and messages grow with it.
    """
    dims = {**module.info.dims, "batch": batch}
    info = replace(module.info, batch=batch, max_batch=batch, max_requests=requests, dims=dims)
    profile = profile_submodules(info, module.graph, module.submodules or ())
    return problem_of(replace(module, info=info, profile=profile), load_devices(devices))


def with_bandwidth(problem: Problem, a: str, b: str, bytes_per_s: float) -> Problem:
    """The same problem with another bandwidth between two devices, both ways."""

    def changed(link: Link) -> Link:
        if {link.sender, link.receiver} != {a, b}:
            return link
        return replace(link, bandwidth_bytes_per_s=bytes_per_s)

    return with_links(problem, changed)
