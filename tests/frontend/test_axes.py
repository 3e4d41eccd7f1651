"""Positions of pictures in several axes, against what transformers computes of whole prompts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForMultimodalLM

from partc.frontend.trace.axes import Axes, UnknownPositionsError, ask_axes
from partc.frontend.trace.media import Media
from tests.families.media import FAMILIES

pytestmark = [pytest.mark.hf]

GRID = (4, 6)
ROWS = 6
TOKEN = 99
MEDIA = Media(TOKEN, {}, {"image_grid_thw": torch.tensor([[1, *GRID]])}, rows=ROWS)


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    with torch.device("meta"):
        config = CONFIG_MAPPING["qwen2_vl"](**FAMILIES["qwen2_vl"].config)
        made: torch.nn.Module = AutoModelForMultimodalLM.from_config(config)
        return made


@pytest.fixture(scope="module")
def axes(network: torch.nn.Module) -> Axes:
    found = ask_axes(network, MEDIA)
    assert found is not None
    return found


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_positions(network: torch.nn.Module, axes: Axes, texts: list[int]) -> None:
    """Texts with pictures of one size between them, and a token of the answer."""
    picture = [TOKEN] * ROWS
    ids = [*[5] * texts[0], *(token for length in texts[1:] for token in (*picture, *[5] * length))]
    prompt = torch.tensor([ids])
    grids = torch.tensor([[1, *GRID]] * (len(texts) - 1))
    kinds = (prompt == TOKEN).int()
    right, delta = network.model.get_rope_index(prompt, kinds, image_grid_thw=grids)  # type: ignore[union-attr, operator]
    marks = (prompt == TOKEN).long()
    rank = torch.cumsum(marks, 1) - marks
    assert torch.equal(axes.positions(torch.arange(len(ids))[None], rank, prompt == TOKEN), right)
    place, none = torch.tensor([[len(ids)]]), torch.tensor([[False]])
    answer = axes.positions(place, torch.tensor([[int(marks.sum())]]), none)
    assert torch.equal(answer, (place + delta).expand(3, 1, 1))


def test_a_model_of_one_axis_has_none() -> None:
    assert ask_axes(torch.nn.Linear(1, 1), MEDIA) is None


def test_another_rule_is_refused(network: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that go on from the number of tokens before the picture, squared."""
    ask = network.model.get_rope_index  # type: ignore[union-attr]

    def odd(
        input_ids: torch.Tensor, mm_token_type_ids: torch.Tensor, image_grid_thw: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found, delta = ask(input_ids, mm_token_type_ids, image_grid_thw)  # type: ignore[operator]
        return torch.where(found > 4, found**2, found), delta

    monkeypatch.setattr(network.model, "get_rope_index", odd)
    with pytest.raises(UnknownPositionsError):
        ask_axes(network, MEDIA)
