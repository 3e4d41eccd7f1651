"""What becomes of a traced program before it is ONNX: sizes, ranges, queries at the end of keys, complex numbers."""

from __future__ import annotations

from typing import Any

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import RandomModel
from partc.ir.text import print_module

pytestmark = pytest.mark.hf

BUFFER = 32


def _exported(module: Any) -> Any:
    """`module(input_ids, position, index, past)`, whose sequence and past may change."""
    import torch

    sequence = torch.export.Dim("sequence", min=1, max=BUFFER)
    past = torch.export.Dim("past", min=0, max=BUFFER)
    batch = torch.export.Dim("batch", min=1, max=16)
    values = _inputs(7, 5)
    sizes = ({0: batch, 1: sequence}, {0: batch}, {0: sequence}, {0: past})
    return torch.export.export(module, values, dynamic_shapes=sizes, strict=False)


def _inputs(sequence: int, past: int) -> tuple[Any, ...]:
    import torch

    return (
        torch.zeros(3, sequence, dtype=torch.int64),
        torch.tensor([past, 0, past // 2]),
        torch.arange(sequence),
        torch.zeros(past, dtype=torch.int64),
    )


def test_a_range_from_the_past_has_the_size_of_the_sequence() -> None:
    import torch

    from partc.frontend.trace.sizes import simplify_sizes

    class Positions(torch.nn.Module):
        def forward(self, input_ids: Any, position: Any, index: Any, past: Any) -> Any:
            rows = torch.arange(past.shape[0], past.shape[0] + input_ids.shape[1])
            return rows + position[:, None]

    program = _exported(Positions())
    simplify_sizes(program)
    called = [str(node.target) for node in program.graph.nodes]
    assert "aten.arange.default" in called and "aten.arange.start_step" not in called
    for sequence, past in ((1, 0), (4, 9)):
        values = _inputs(sequence, past)
        assert torch.equal(program.graph_module(*values)[0], Positions()(*values))


def test_a_size_of_one_value_becomes_a_number() -> None:
    import torch

    from partc.frontend.trace.sizes import simplify_sizes

    class Slices(torch.nn.Module):
        def forward(self, input_ids: Any, position: Any, index: Any, past: Any) -> Any:
            first = torch.sym_max(0, 1 - input_ids.shape[1] - past.shape[0])  # type: ignore[no-untyped-call]
            return torch.ones(1, 4)[first:] + position[:, None]

    program = _exported(Slices())
    assert any(node.target is torch.sym_max for node in program.graph.nodes)
    simplify_sizes(program)
    assert not any(node.target is torch.sym_max for node in program.graph.nodes)
    assert torch.equal(program.graph_module(*_inputs(3, 2))[0], Slices()(*_inputs(3, 2)))


def _last_rows(shape: tuple[int, ...], axis: int) -> Any:
    """A module that takes the last rows of a table for those of the queries."""
    import torch

    class LastRows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Buffer(torch.rand(shape))

        def forward(self, input_ids: Any, position: Any, index: Any, past: Any) -> Any:
            queries = input_ids.shape[1]
            rows = self.table.narrow(axis, 0, BUFFER)[
                (slice(None),) * axis + (slice(BUFFER - queries, BUFFER),)
            ]
            return rows.sum(-1) + position.reshape(-1, *[1] * max(1, len(shape) - 2))

    return LastRows()


def test_queries_have_the_rows_of_their_positions() -> None:
    import torch

    from partc.frontend.trace.alignment import align_queries

    module = _last_rows((1, 1, 40, 6), 2)
    program = _exported(module)
    align_queries(program, BUFFER)
    values = _inputs(4, 9)
    (found,) = program.graph_module(module.table, *values)
    rows = values[1][:, None] + values[2]
    expected = module.table[0, 0][rows].sum(-1)[:, None] + values[1].reshape(-1, 1, 1)
    torch.testing.assert_close(found, expected)


def test_what_is_no_table_is_refused() -> None:
    from partc.frontend.trace.alignment import NotAlignedError, align_queries

    with pytest.raises(NotAlignedError, match="last rows of the cache"):
        align_queries(_exported(_last_rows((40, 6), 0)), BUFFER)


def test_pairs_are_complex_numbers() -> None:
    import torch

    from partc.frontend.trace.complex_pairs import Pair, complex_as_pairs

    angles, rows = torch.rand(2, 5, 4), torch.rand(2, 5, 3, 4, 2)

    def turned() -> Any:
        table = torch.polar(torch.ones_like(angles), angles) * 1.5
        product = torch.view_as_complex(rows) * table.to(rows.device)[:, :, None, :]
        return torch.view_as_real(product * 2.0).flatten(3)

    expected = turned()
    with complex_as_pairs():
        assert isinstance(torch.polar(angles, angles), Pair)
        torch.testing.assert_close(turned(), expected)
    assert torch.is_tensor(torch.polar(angles, angles))
    with pytest.raises(TypeError, match="complex numbers as"):
        Pair(angles, angles).to(torch.float16)  # type: ignore[arg-type]


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("old", [False, True])
def test_dynamic_rope_scaling_is_the_plain_table_up_to_the_length_of_training(old: bool) -> None:
    from partc.frontend.load import load_model

    plain = {
        "model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 4, "max_position_embeddings": 32,
    }  # fmt: skip
    now = {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}
    scaled = {"rope_scaling": {"type": "dynamic", "factor": 2.0}} if old else now
    bodies = []
    for config in (plain, plain | scaled):
        module = load_model(ModelConfig(RandomModel(config, 0), max_sequence=32))
        _, header, body = print_module(module).split("\n", 2)
        assert ("dynamic" in header) == (config is not plain)
        bodies.append(body)
    assert bodies[0] == bodies[1]
