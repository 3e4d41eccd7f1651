"""`shard-blocks`: which blocks are found, and that the divided graph computes what the whole one does."""

from __future__ import annotations

import numpy as np
import pytest

from partc.errors import PlanError
from partc.ir.graph import Graph, Module, State, Weight
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module, print_module
from partc.ir.verify import verify
from partc.ir.weights import Array, has_step
from partc.pipeline.contract import Context
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from passes.quantize_caches import quantize_caches
from passes.quantize_weights import quantize_weights
from passes.shard_blocks import ShardBlocks, shard_blocks
from passes.shards.blocks import find_blocks
from tests.passes.interpreter import Checkpoint, run
from tests.passes.models import INNER, decoder, graph


def feeds(graph_: Graph, tokens: Array, position: int) -> dict[str, Array]:
    count = tokens.shape[1]
    steps: dict[str, Array] = {
        "position": np.array([position]),
        "length": np.array([count]),
        "index": np.arange(count),
    }
    return {value.name: (steps | {"input_ids": tokens})[value.name] for value in graph_.inputs}


def outputs(graph_: Graph, checkpoint: Checkpoint, prompt: int, decodes: int) -> list[Array]:
    """All outputs of a prompt and of steps of one token behind it; the tokens are the same for every graph."""
    rng, states, found = np.random.default_rng(prompt), dict[str, Array](), list[Array]()
    tokens, position = rng.integers(0, 64, (1, prompt)), 0
    for _ in range(1 + decodes):
        found += run(graph_, feeds(graph_, tokens, position), checkpoint, states)
        position += tokens.shape[1]
        tokens = rng.integers(0, 64, (1, 1))
    return found


@pytest.mark.parametrize("kind", ["llama", "gpt2", "neox", "olmo2"])
def test_the_divided_graph_computes_what_the_whole_one_does(kind: str) -> None:
    module = decoder(kind)
    text, checkpoint = print_module(module), Checkpoint(module.graph)
    for shares, prompt in zip(((3, 2), (2, 3, 2), (0, 1, 1)), (7, 1, 33), strict=True):
        whole = outputs(module.graph, checkpoint, prompt, decodes=1)
        divided = parse_module(text)
        assert shard_blocks(divided.graph, shares) == 4
        run_passes(divided, load_passes("infer-sizes"))
        verify(divided, "sized")
        assert print_module(parse_module(print_module(divided))) == print_module(divided)
        for ours, expected in zip(outputs(divided.graph, checkpoint, prompt, 1), whole, strict=True):
            np.testing.assert_allclose(
                ours.astype(np.float32), expected.astype(np.float32), rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize(
    ("kind", "precision", "cache"),
    [("llama", "int8", "int8"), ("gpt2", "int4", "none"), ("olmo2", "int4", "int8")],
)
def test_shares_of_a_quantised_graph_have_the_numbers_of_the_whole(
    kind: str, precision: str, cache: str
) -> None:
    """Rows of 8 bits keep the scale of the whole row, blocks of 4 bits stay together: the products are the same."""
    module = decoder(kind)
    checkpoint = Checkpoint(module.graph)
    quantize_weights(module.graph, Quantization(precision, precision))
    if cache == "int8":
        quantize_caches(module.graph)
    run_passes(module, load_passes("infer-sizes"))
    text = print_module(module)
    for shares, prompt in zip(((3, 2), (0, 1, 1)), (7, 1), strict=True):
        whole = outputs(module.graph, checkpoint, prompt, decodes=1)
        divided = parse_module(text)
        assert shard_blocks(divided.graph, shares) == 4
        run_passes(divided, load_passes("infer-sizes"))
        verify(divided, "sized")
        for ours, expected in zip(outputs(divided.graph, checkpoint, prompt, 1), whole, strict=True):
            np.testing.assert_allclose(
                ours.astype(np.float32), expected.astype(np.float32), rtol=1e-4, atol=1e-4
            )
    columns = {block.units for block in find_blocks(module.graph)[0] if block.kind == "columns"}
    assert columns == {INNER if precision == "int8" else INNER // 32}


def test_blocks_of_4_bits_that_span_all_columns_are_not_divided() -> None:
    module = decoder("llama")
    quantize_weights(module.graph, Quantization("int4", block=INNER))
    blocks, others = find_blocks(module.graph)
    assert not blocks
    assert [one.reason for one in others].count("all of it belongs together") == 4


@pytest.mark.parametrize("kind", ["llama", "gpt2", "neox", "olmo2"])
def test_every_block_of_a_small_decoder_is_found(kind: str) -> None:
    blocks, others = find_blocks(decoder(kind).graph)
    assert [block.kind for block in blocks].count("heads") == 2
    assert [block.kind for block in blocks].count("columns") == 2
    assert {block.units for block in blocks} == {2, 128}
    # Each of the other products begins a block, or is the head, and says what stands before it.
    assert others and all(one.reason for one in others)


def test_shares_hold_all_of_a_weight_once_and_caches_by_heads() -> None:
    module = decoder("llama")
    before = {weight.name: weight.shape for weight in module.graph.weights()}
    shard_blocks(module.graph, (1, 1))
    graph_ = module.graph
    parts = {w.name: w.shape for w in graph_.weights() if isinstance(w, Weight) and ".share" in w.name}
    for name, shape in before.items():
        mine = [parts[key] for key in parts if key.rpartition(".share")[0] == name]
        if mine and shape is not None:
            sizes = [np.prod([int(size) for size in part or ()]) for part in mine]
            assert sum(sizes) == np.prod([int(size) for size in shape])
    caches = [state.shape for state in graph_.leaves() if isinstance(state, State)]
    assert sorted(shape[1] for shape in caches if shape) == [1] * 8  # two heads, one each, in two layers
    assert all(
        w.source is not None and has_step(w.source, "slice") for w in graph_.weights() if ".share" in w.name
    )


def test_a_dropped_share_and_a_moved_one_are_seen() -> None:
    module = module_text()
    checkpoint = Checkpoint(module.graph)
    whole = run(module.graph, {"x": np.ones((1, 2, 4), np.float32)}, checkpoint)[0].astype(np.float32)
    divided = module_text()
    shard_blocks(divided.graph, (1, 1))
    (sum_,) = (node for node in divided.graph.nodes if node.op == "Add")
    ours = run(divided.graph, {"x": np.ones((1, 2, 4), np.float32)}, checkpoint)[0].astype(np.float32)
    np.testing.assert_allclose(ours, whole, atol=1e-6)
    left, right = sum_.inputs
    sum_.inputs = [left, left]
    twice = run(divided.graph, {"x": np.ones((1, 2, 4), np.float32)}, checkpoint)[0].astype(np.float32)
    assert np.abs(twice - whole).max() > 1e-2
    assert left is not right


MLP = """
  input %x: f32[batch, sequence, 4]
  weight %up = f32[4, 6] from "m.safetensors"#"up"
  weight %down = f32[6, 4] from "m.safetensors"#"down"
  %a: f32[batch, sequence, 6] = MatMul(%x, %up)
  %b: f32[batch, sequence, 6] = Gelu(%a)
  %y: f32[batch, sequence, 4] = MatMul(%b, %down)
  output %y
"""


def module_text(lines: str = MLP) -> Module:
    return graph(lines, dims={"batch": 1, "sequence": 4})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("output %y", "output %y, %b"), "b is a result of the graph"),
        (("Gelu(%a)", "Softmax(%a)"), "Softmax has no rule"),
        (("output %y", "%z: f32[batch, sequence, 6] = Neg(%b)\n  output %y, %z"), "reads b, too"),
    ],
)
def test_what_cannot_be_divided_says_why(change: tuple[str, str], reason: str) -> None:
    module = module_text(MLP.replace(*change))
    blocks, others = find_blocks(module.graph)
    assert not blocks and any(reason in one.reason for one in others)
    with pytest.raises(PlanError, match="no block can be shared"):
        shard_blocks(module.graph, (1, 1))


@pytest.mark.parametrize("shares", ["", "1", "0:0", "a:b", "1:-1"])
def test_shares_are_a_list_of_numbers(shares: str) -> None:
    with pytest.raises(PlanError, match="is no list of shares"):
        ShardBlocks(shares=shares).apply(module_text(), Context())
