"""find-cuts keeps pictures and sound on the source: nothing is cut before they are embedded."""

from __future__ import annotations

import pytest

from partc.ir.graph import Module
from partc.ir.privacy import raw_values
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from passes.find_cuts import RULES, find_cuts
from tests.passes.models import graph

# The mean is learnt, so that neither the scaled picture nor its patches are merely what the request brings.
PATCHES = """
    input %pixel_values: f32[batch, 8, 4]
    weight %mean = f32[4] from "m.safetensors"#"mean"
    weight %w = f32[32, 16] from "m.safetensors"#"w"
    weight %u = f32[16, 16] from "m.safetensors"#"u"
    const %flat = i64[2] [0, 32]
    %scaled: f32[batch, 8, 4] = Sub(%pixel_values, %mean)
    %turned: f32[batch, 4, 8] = Transpose(%scaled) {perm=[0, 2, 1]}
    %positive: f32[batch, 4, 8] = Relu(%turned)
    %doubled: f32[batch, 4, 8] = Add(%turned, %positive)
    %patches: f32[batch, 32] = Reshape(%doubled, %flat)
    %embedded: f32[batch, 16] = MatMul(%patches, %w)
    %active: f32[batch, 16] = Relu(%embedded)
    %layer: f32[batch, 16] = MatMul(%active, %u)
    %out: f32[batch, 16] = Add(%layer, %active)
    output %out
"""
AGAIN = PATCHES.replace("Add(%layer, %active)", "Add(%layer, %skip)").replace(
    "    %out:", "    %skip: f32[batch, 16] = MatMul(%patches, %w)\n    %out:"
)


def candidates(module: Module, rule: str) -> list[str]:
    run_passes(module, [load_pass(f"find-cuts{{rule={rule}}}")])
    return [node.name for node in module.candidates or ()]


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_cut_before_the_picture_is_embedded(rule: str) -> None:
    module = graph(PATCHES, task="image-classification")
    free = {node.name for node in find_cuts(module.graph, rule)}
    assert free & {"turned", "doubled", "patches", "embedded"}, "the rule alone would let the picture leave"
    assert not set(candidates(module, rule)) & {"scaled", "turned", "doubled", "patches", "embedded"}


def test_behind_the_embedding_cuts_stay() -> None:
    assert "active" in candidates(graph(PATCHES, task="image-classification"), "eq1+frontier")


def test_a_graph_of_nobody_knows_what_is_cut_anywhere() -> None:
    module = graph(PATCHES, task="graph")
    assert candidates(module, "eq1+frontier") == [node.name for node in find_cuts(module.graph)]


def test_a_picture_that_is_read_again_cuts_nothing_before() -> None:
    module = graph(AGAIN, task="image-classification")
    assert not set(candidates(module, "eq1+frontier")) & {"active", "layer"}


def test_sizes_and_embeddings_are_not_raw() -> None:
    raw = {value.name for value in raw_values(graph(PATCHES).graph)}
    assert raw == {"pixel_values", "scaled", "turned", "positive", "doubled", "patches"}
