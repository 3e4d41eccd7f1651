"""The figures for the cost of quantisation, against their plain formulas."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from partc.config.model import ModelConfig
from partc.config.sources import RandomModel
from partc.ir.quantization import Quantization
from partc.verifier.cost import Sums, cost_of_text, log_softmax, perplexity
from partc.verifier.passages import Passage
from partc.verifier.reference import Reference

Array = npt.NDArray[Any]

CONFIG = ModelConfig(
    RandomModel({"model_type": "llama"}, 0), quantize=Quantization("int4", "int8", "none", 64)
)
FULL = ([2.0, 0.5, -1.0, 0.0], [0.1, 0.2, 0.3, 0.25], [-3.0, 4.0, 1.0, 1.0])
ROUNDED = ([1.5, 0.75, -1.0, 0.25], [0.0, 0.25, 0.25, 0.5], [-3.0, 4.0, 1.0, 1.0])
FOLLOWS = (0, 2, 3)


def _softmax(row: Sequence[float]) -> list[float]:
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def test_the_sums_are_those_of_the_plain_formulas() -> None:
    sums = Sums()
    for full, rounded, token in zip(FULL, ROUNDED, FOLLOWS, strict=True):
        sums.add(np.array(full), np.array(rounded, np.float32), token)
    pairs = [(_softmax(full), _softmax(rounded)) for full, rounded in zip(FULL, ROUNDED, strict=True)]
    kl = sum(a * math.log(a / b) for p, q in pairs for a, b in zip(p, q, strict=True))
    assert math.isclose(sums.kl_nats, kl, rel_tol=1e-12)
    assert math.isclose(
        sums.nats, -sum(math.log(q[t]) for (_, q), t in zip(pairs, FOLLOWS, strict=True)), rel_tol=1e-12
    )
    assert math.isclose(
        sums.nats_full, -sum(math.log(p[t]) for (p, _), t in zip(pairs, FOLLOWS, strict=True)), rel_tol=1e-12
    )
    assert (sums.tokens, sums.agreed) == (3, 2)


def test_equal_logits_cost_nothing_even_where_a_token_is_impossible() -> None:
    row = np.array([1.0, -math.inf, 3.0])
    sums = Sums()
    sums.add(row, row, 2)
    assert (sums.agreed, sums.kl_nats, sums.nats) == (1, 0.0, sums.nats_full)


def test_a_constant_added_to_logits_costs_nothing() -> None:
    row = np.array(FULL[0])
    sums = Sums()
    sums.add(row, row + 300, 1)
    assert abs(sums.kl_nats) < 1e-12


def test_large_logits_do_not_overflow() -> None:
    found = log_softmax(np.array([60000.0, 59990.0], np.float16))
    assert np.isfinite(found).all()
    assert math.isclose(float(np.exp(found).sum()), 1.0)


def test_perplexity_of_a_uniform_guess_is_the_size_of_the_vocabulary() -> None:
    assert math.isclose(perplexity(7 * math.log(50), 7) or 0.0, 50.0)
    assert perplexity(math.inf, 3) is None


class _Table(Reference):
    """The logits after a token are a row of a table; after the token at an odd place they are another row."""

    def __init__(self, table: Array) -> None:
        self.table = table

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        (ids,) = inputs["input_ids"]
        return {"logits": np.array([[self.table[place % 2, token] for place, token in enumerate(ids)]])}

    def counterparts(self, inputs: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
        return {}


class _Steps:
    """The same with noise, a token a step; refuses steps that do not follow each other."""

    def __init__(self, table: Array) -> None:
        self.table = table
        self.next = -1

    def begin(self, batch: int) -> None:
        assert batch == 1
        self.next = 0

    def step(self, ids: Array, position: Sequence[int], length: Sequence[int]) -> dict[str, Array]:
        assert (list(position), list(length), ids.shape) == ([self.next], [1], (1, 1))
        self.next += 1
        return {"logits": self.table[position[0] % 2, ids[0, 0]][None, None]}

    def logits(self, made: Mapping[str, Array]) -> Array:
        return np.asarray(made["logits"][:, 0])


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_the_cost_of_a_text_counts_every_prediction_once(scale: float, rng: np.random.Generator) -> None:
    table = rng.standard_normal((2, 5, 5))
    rough = table + scale * rng.standard_normal(table.shape)
    passages = [Passage([1, 4, 2, 2, 0]), Passage([3, 3, 1, 0], first=2)]
    steps: Any = _Steps(rough)
    progress: list[tuple[str, int, int]] = []
    cost = cost_of_text(CONFIG, steps, _Table(table), passages, "a text", lambda *told: progress.append(told))
    sums = Sums()
    for passage in passages:
        for place in range(passage.first, len(passage.ids)):
            row = ((place - 1) % 2, passage.ids[place - 1])
            sums.add(table[row], rough[row], passage.ids[place])
    assert (cost.weights, cost.head, cost.embeddings, cost.block) == ("int4", "int8", "none", 64)
    assert (cost.tokens, cost.text) == (4 + 2, "a text")
    assert cost.kl_nats == sums.kl_nats / 6
    assert cost.top1_agreement == sums.agreed / 6
    assert cost.perplexity == perplexity(sums.nats, 6)
    assert cost.perplexity_full == perplexity(sums.nats_full, 6)
    assert (cost.kl_nats == 0.0) == (scale == 0.0)
    assert progress[-1] == ("cost of quantisation", 7, 7)


def test_rounding_logits_to_float16_costs_little_and_more_noise_more(rng: np.random.Generator) -> None:
    table = rng.standard_normal((2, 9, 9)).astype(np.float32)
    text = [Passage([int(token) for token in rng.integers(0, 9, 200)])]
    rough: Any = [table.astype(np.float16), table + 0.1 * rng.standard_normal(table.shape)]
    costs: list[Any] = [
        cost_of_text(CONFIG, _Steps(rounded), _Table(table), text, "", lambda *told: None)  # type: ignore[arg-type]
        for rounded in rough
    ]
    small, large = (cost.kl_nats for cost in costs)
    assert 0 < small < 1e-6 < large < 0.1
    assert costs[0].top1_agreement == 1.0
