"""Features in the place of placeholders, and what is known while a model is traced, against plain torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from partc.frontend.trace.known_values import KnownValues, Unpadded, WrittenOverError
from partc.frontend.trace.placeholders import (
    FeaturesFound,
    Placeholders,
    TextLooksAheadError,
    placeholders_of,
)

IDS = torch.tensor([[5, 9, 9, 2, 9]])
FEATURES = torch.arange(12.0).reshape(3, 4)
ROWS = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))


class _Traced(torch.Tensor):
    """Stands for a tensor of a trace: a class of its own, with values."""

    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> _Traced:
        return tensor.as_subclass(cls)


def _scattered(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return rows.masked_scatter(mask[..., None], FEATURES)


def _put(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return rows.index_put(torch.nonzero(mask, as_tuple=True), FEATURES)


def _assigned(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = rows.clone()
    rows[mask] = FEATURES
    return rows


def _added(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = rows.clone()
    chosen = rows[mask, :] + FEATURES
    rows[mask, :] = chosen
    return rows


@pytest.mark.parametrize("write", [_scattered, _put, _assigned, _added])
def test_what_models_do_at_placeholders(
    write: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """A mask that is not plain is one of the trace; plain torch with plain tensors says what is right."""
    mask = IDS == 9
    rank = torch.cumsum(mask.long(), 1) - mask.long()
    with Placeholders(rank, torch.tensor([0]), IDS):
        found = write(ROWS, _Traced(mask))
    assert torch.equal(found.as_subclass(torch.Tensor), write(ROWS, mask))


def test_in_an_answer_a_placeholder_is_text() -> None:
    mask = IDS == 9
    rank = torch.cumsum(mask.long(), 1) - mask.long()
    with Placeholders(rank, torch.tensor([4]), IDS):
        found = _scattered(ROWS, _Traced(mask))
    assert torch.equal(found.as_subclass(torch.Tensor), ROWS)


def test_placeholders_of_an_answer_move_no_positions() -> None:
    """A text goes on by one place behind the token, as behind any other."""
    ids = torch.tensor([[9, 2], [9, 2]])
    found = placeholders_of(ids, torch.tensor([0, 4]), 9)
    assert found.tolist() == [[True, False], [False, False]]


def test_rows_are_counted() -> None:
    with (
        pytest.raises(FeaturesFound) as found,
        Placeholders(torch.zeros_like(IDS), torch.tensor([0]), IDS, counts=True),
    ):
        _scattered(ROWS, _Traced(IDS == 9))
    assert found.value.rows == 3


def test_text_that_looks_ahead_is_noticed() -> None:
    """PaliGemma makes a mask of the tokens that are no placeholders; Gemma 3 of those that are."""
    kinds = _Traced((IDS == 9).long())
    with Placeholders(torch.zeros_like(IDS), torch.tensor([0]), kinds):
        assert (kinds == 1).any()
        with pytest.raises(TextLooksAheadError):
            torch.where(kinds == 0, 0, -1)


def test_a_picture_has_no_padding() -> None:
    pixels = _Traced(torch.zeros(2, 3, 4, 4))
    with KnownValues(), Unpadded():
        real = (pixels == 0.0).sum((-1, -2, -3)) != pixels.shape[1:].numel()
        assert real.tolist() == [True, True]


def test_plain_tensors_are_computed_for_real() -> None:
    """Within a mode in which nothing has values, lengths of windows are numbers, and may be looped over."""
    grid = torch.tensor([[1, 4, 6]])
    with FakeTensorMode(allow_non_fake_inputs=True), KnownValues():
        ends = torch.nn.functional.pad((grid[:, 1] * grid[:, 2]).cumsum(0), (1, 0))
        lengths = (ends[1:] - ends[:-1]).tolist()
    assert lengths == [24]


def test_where_plain_meets_the_trace_sizes_are_numbers() -> None:
    mask = torch.tensor([True, False, True])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, KnownValues():
        rows = mode.from_tensor(torch.zeros(3, 4))
        some = rows[mask]
        first = rows[: torch.tensor(2)]
    assert isinstance(some, FakeTensor)
    assert (some.shape, first.shape) == ((2, 4), (2, 4))


@pytest.mark.parametrize(
    "write",
    [
        lambda known, rows: known.copy_(rows),
        lambda known, rows: known.__setitem__(1, rows[0]),
        lambda known, rows: known[1].add_(rows[0]),
        lambda known, rows: known.__iadd__(rows),
    ],
)
def test_the_trace_writes_into_nothing_that_is_known(
    write: Callable[[torch.Tensor, torch.Tensor], object],
) -> None:
    """A product of the tensor would be computed of the values before; among plain tensors, all is as in torch."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, KnownValues():
        rows, known = mode.from_tensor(torch.ones(3, 4)), torch.zeros(3, 4)
        with pytest.raises(WrittenOverError):
            write(known, rows)
        rows.add_(known)
        write(known, torch.full((3, 4), 2.0))
        assert known[1].tolist() == [2.0] * 4
