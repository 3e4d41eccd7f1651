"""The cost of quantisation: predictions of the quantised model beside those of the original, token by token.

Both are given the same text (teacher forcing) and predict every next token of it. The quantised model takes one token a
step as it does when it generates, the original the whole passage at once. The text is chosen before the long work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.errors import InternalError, UserError
from partc.format.role import Role
from partc.pipeline.contract import Progress
from partc.runtime.client.text import TOKENIZER_FILE, Tokenizer
from partc.verifier.compare import difference, valid_rows
from partc.verifier.inputs import Requests, StepRequest, built_in_prompts, built_in_requests
from partc.verifier.passages import Passage, find_text, own_passages, read_passages
from partc.verifier.reference import Reference, open_reference
from partc.verifier.report import Cost
from partc.verifier.uncut import UncutModel

Array = npt.NDArray[Any]


@dataclass
class Sums:
    """Over all tokens that were predicted so far."""

    tokens: int = 0
    agreed: int = 0
    kl_nats: float = 0.0
    nats: float = 0.0
    """-log p of the tokens that really follow."""
    nats_full: float = 0.0

    def add(self, full: Array, quantized: Array, token: int | None = None) -> None:
        """One prediction: logits [vocabulary] of both, and the token that follows, if there is one.

        KL(p || q) = sum of p (log p - log q), with p of the original. Where p is 0 the term is 0.
        """
        p, q = log_softmax(full), log_softmax(quantized)
        self.tokens += 1
        self.agreed += int(np.argmax(full) == np.argmax(quantized))
        likely = np.isfinite(p)
        self.kl_nats += float(np.sum(np.exp(p[likely]) * (p[likely] - q[likely])))
        if token is not None:
            self.nats -= float(q[token])
            self.nats_full -= float(p[token])


def log_softmax(logits: Array) -> npt.NDArray[np.float64]:
    """The log of p of every token, [vocabulary]."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - math.log(np.exp(shifted).sum()))


def perplexity(nats: float, tokens: int) -> float | None:
    """The exponential of the mean; None where a token was thought impossible."""
    mean = nats / tokens
    return math.exp(mean) if mean < 700 else None


def cost_of_text(
    config: ModelConfig,
    model: UncutModel,
    full: Reference,
    passages: Sequence[Passage],
    text: str,
    progress: Progress,
) -> Cost:
    """The cost on passages of tokens.

    Time: a decode step of the quantised model for each token, one run of the original for each passage.

    Memory: the original's logits of one passage, 4 · tokens · vocabulary bytes.
    """
    sums, done = Sums(), 0
    total = sum(len(passage.ids) - 1 for passage in passages)
    for passage in passages:
        logits = full.outputs({"input_ids": np.array([passage.ids[:-1]], np.int64)})["logits"][0]
        model.begin(1)
        for at, token in enumerate(passage.ids[:-1]):
            made = model.step(np.array([[token]], np.int64), [at], [1])
            if at + 1 >= passage.first:
                sums.add(logits[at], model.logits(made)[0], passage.ids[at + 1])
            done += 1
            progress("cost of quantisation", done, total)
    return _cost(
        config,
        text,
        tokens=sums.tokens,
        top1_agreement=sums.agreed / sums.tokens,
        kl_nats=sums.kl_nats / sums.tokens,
        perplexity=perplexity(sums.nats, sums.tokens),
        perplexity_full=perplexity(sums.nats_full, sums.tokens),
    )


def cost_of_outputs(
    config: ModelConfig,
    model: UncutModel,
    full: Reference,
    requests: Sequence[StepRequest],
    progress: Progress,
) -> Cost:
    """The cost for a model of one step: the error of its outputs, and for a classifier its top-1 agreement."""
    sums, error = Sums(), 0.0
    for number, request in enumerate(requests):
        progress("cost of quantisation", number, len(requests))
        expected = full.outputs(request.original)
        for name, found in model.outputs(request.ring).items():
            error = max(
                error, difference(*valid_rows(request.original.get("attention_mask"), found, expected[name]))
            )
            if config.task == "text-classification":
                for row, quantized in zip(expected[name], found, strict=True):
                    sums.add(row, quantized)
    progress("cost of quantisation", len(requests), len(requests))
    labels = (
        {
            "tokens": sums.tokens,
            "top1_agreement": sums.agreed / sums.tokens,
            "kl_nats": sums.kl_nats / sums.tokens,
        }
        if sums.tokens
        else {}
    )
    return _cost(config, "the inputs above", max_abs_error=error, **labels)


def _cost(config: ModelConfig, text: str, **figures: Any) -> Cost:
    own = config.quantize
    if own is None:
        raise InternalError("a build that is not quantised has no cost of it")
    return Cost(own.weights, own.head, own.embeddings, own.block, text, cache=own.cache, **figures)


_OWN = "text that the original writes"


@dataclass(frozen=True)
class CostMeasurement:
    """A measurement that is ready to begin; nothing heavy is loaded yet."""

    config: ModelConfig
    role: Role
    """The role of the source of the build."""
    prompts: Sequence[Sequence[int]]
    """The original goes on after these, where there are no passages."""
    passages: Sequence[Passage]
    text: str
    """The name of the text, for the report."""
    tokens: int = 0
    """Tokens that the original writes after each prompt."""

    def cost(self, alone: Path, progress: Progress) -> Cost:
        """Load the original and the uncut model in the folder `alone`, and compare them.

        Raises:
            ModelError: the original cannot be loaded.
        """
        progress("load original", 0, 1)
        full, model = open_reference(self.config), UncutModel(alone)
        progress("load original", 1, 1)
        if self.config.task != "text-generation":
            return cost_of_outputs(self.config, model, full, built_in_requests(self.role), progress)
        passages = self.passages or own_passages(full, self.prompts, self.tokens, progress)
        return cost_of_text(self.config, model, full, passages, self.text, progress)


def choose_measurement(
    build: Path, config: ModelConfig, role: Role, requests: Requests, text: Path | None, most: int
) -> CostMeasurement:
    """The measurement on the given text, else on the model's own sample, else on the original's answers to `requests`.

    Args:
        build: the bundle, whose source has the tokenizer.
        config: the original.
        role: of the source.
        requests: the requests to the ring.
        text: a file of text.
        most: tokens of a text to predict.

    Raises:
        UserError: the text cannot be used.
    """
    if config.task != "text-generation":
        if text is not None:
            raise UserError(
                f"the model is for {config.task}: no text can be predicted",
                where=str(text),
                hint="leave out --text: its outputs are compared",
            )
        return CostMeasurement(config, role, (), (), "")
    folder = build / "devices" / role.source
    tokenizer, readable = Tokenizer(folder), (folder / TOKENIZER_FILE).is_file()
    if text is not None and not readable:
        raise UserError(
            "the build has no tokenizer, so it takes no text",
            where=str(text),
            hint="leave out --text: the model is then measured on text that the original writes",
        )
    if (file := find_text(config, text)) is not None and readable:
        passages = read_passages(file, tokenizer, role.model, most)
        return CostMeasurement(config, role, (), passages, file.name)
    count = requests.count(role.model)
    prompts = tokenizer.encode(requests.texts) if requests.texts else built_in_prompts(role, count)
    return CostMeasurement(config, role, prompts, (), _OWN, count)
