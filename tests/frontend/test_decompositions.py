"""Operators are taken apart, and writes become computations, without a change of what a program computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from partc.frontend.trace.decompositions import decompose_one_by_one

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")]


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _decomposed(function: Callable[[torch.Tensor], torch.Tensor]) -> ExportedProgram:
    """The program as the exporter would have it, whose operators are those that torch's own table leaves."""
    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(
        _Function(function), (torch.ones(5, 4),), dynamic_shapes=({0: rows},), strict=False
    )
    decompose_one_by_one(program)
    found = program.run_decompositions(_table())
    assert isinstance(found, ExportedProgram)
    return found


def _table() -> dict[Any, Callable[..., Any]]:
    """Like the exporter's, which has no composite operators either."""
    table = dict(torch.export.default_decompositions().items())  # type: ignore[no-untyped-call]
    return {target: function for target, function in table.items() if not target._can_decompose()}


def _into_new(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += x
    return y.div_(x.exp()) + y


def _into_slices(x: torch.Tensor) -> torch.Tensor:
    halves = x.new_empty(x.shape)
    halves[:, :3] = x[:, 1:]
    halves[:, 3:] = 7
    return halves


def _into_a_row(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[1] *= 3
    return y


def _view_behind(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.add_(1)
    return y.view(-1)


def _seen_by_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    flat = y.view(-1)
    y.add_(1)
    return flat


def _view_is_over(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    total = y.view(-1).sum()
    y.add_(total)
    return y


def _by_another_name(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    z = y.to(torch.float32)  # the same tensor
    z.add_(1)
    return y


def _through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.view(-1).add_(1)
    return y


def _into_another_type(x: torch.Tensor) -> torch.Tensor:
    y = torch.ones_like(x, dtype=torch.float16)
    y.add_(x / 3)
    return y.float()


def _into_dropout(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    torch.nn.functional.dropout(y, training=False).add_(1)  # the same tensor
    return y


def _into_a_composite(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)
    y *= 2
    return y


def _into_one_of_several(x: torch.Tensor) -> torch.Tensor:
    values, places = torch.topk(x, 2)
    values /= values.sum(-1, keepdim=True)
    return values + places


def _into_one_of_several_views(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    torch.split(y, 2, 1)[0].add_(1)
    return y


def _by_type_as(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    z = y.type_as(x)
    y.add_(1)
    return z


def _by_unsafe_view(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    z: torch.Tensor = torch.ops.aten._unsafe_view(y, [-1])
    y.add_(1)
    return z


def _of_a_square(x: torch.Tensor) -> torch.Tensor:
    y = torch.ones(4, 4) * x.sum(0)
    y[:4].t_()
    return y


def _to_another_memory(x: torch.Tensor) -> torch.Tensor:
    y, z = x.exp(), x * 2
    y.set_(z)  # type: ignore[call-overload]
    y.add_(1)
    return z


def _into_a_power(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).pow_(2)


def _with_a_factor(x: torch.Tensor) -> torch.Tensor:
    return x.exp().add_(x, alpha=3)


def _at_indices(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y[:, torch.tensor([0, 2])] = 5.0
    return y


def _into_a_slice_of_a_row(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y[1][1:3] = 5.0
    return y


def _is_returned(x: torch.Tensor) -> torch.Tensor:
    return x.exp().to(torch.float64)


def _no_write(x: torch.Tensor) -> torch.Tensor:
    left, right = torch.nn.functional.layer_norm(x, (4,)).chunk(2, 1)
    return (left.to(torch.float64) - 3).reshape(-1) * right.reshape(x.shape[0] * 2) / x.numel()


HERE = [
    _into_new, _into_slices, _into_a_slice_of_a_row, _view_behind, _view_is_over, _is_returned, _no_write,
    _into_dropout, _into_a_composite, _into_one_of_several, _with_a_factor, _at_indices,
]  # fmt: skip
"""Functions that are taken apart here."""
BY_TORCH = [
    _into_a_row, _seen_by_a_view, _by_another_name, _through_a_view, _into_another_type, _into_one_of_several_views,
    _by_unsafe_view, _of_a_square, _to_another_memory, _into_a_power,
]  # fmt: skip
"""Functions whose writes are left to torch."""


@pytest.mark.parametrize("function", [*HERE, *BY_TORCH])
def test_computes_the_same(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = _decomposed(function)
    outputs = [node.name for node in program.graph.output_node().all_input_nodes]
    assert list(program.graph_signature.user_outputs) == outputs
    for rows in (2, 5, 9):
        x = torch.linspace(-2, 2, rows * 4).reshape(rows, 4)
        torch.testing.assert_close(program.module()(x), function(x.clone()))


@pytest.mark.parametrize("function", [*HERE, *BY_TORCH])
def test_no_writes_and_no_composites_are_left(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    table = _table()
    for node in _decomposed(function).graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor) and isinstance(node.target, torch._ops.OpOverload):
            assert node.target not in table
            assert not any(
                each.alias_info and each.alias_info.is_write for each in node.target._schema.arguments
            )
            is_view = any(each.alias_info for each in node.target._schema.returns)
            assert not (is_view and node.target._can_decompose())


@pytest.mark.parametrize("function", HERE)
def test_without_a_trace_of_the_whole(
    function: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExportedProgram, "run_decompositions", None)
    _decomposed(function)


@pytest.mark.parametrize(
    "function", [*BY_TORCH, _by_type_as]
)  # in the last one torch forgets that it is the same
def test_other_writes_are_left_to_torch(
    function: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ExportedProgram] = []

    def by_torch(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
        asked.append(program)
        return program

    monkeypatch.setattr(ExportedProgram, "run_decompositions", by_torch)
    assert asked == [_decomposed(function)]


def test_a_size_is_computed_once() -> None:
    program = _decomposed(_no_write)
    values = (node.meta.get("val") for node in program.graph.nodes)
    sizes = [str(value) for value in values if isinstance(value, torch.SymInt)]
    assert len(sizes) == len(set(sizes))
