"""The choice of what the cost of quantisation is measured on, before the long work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.config.model import ModelConfig
from partc.errors import UserError
from partc.format.role import Role
from partc.pipeline.contract import Progress
from partc.runtime.client.text import TOKENIZER_FILE, Tokenizer
from partc.verify.cost import cost_of_outputs, cost_of_text
from partc.verify.inputs import Requests, built_in_prompts, built_in_requests
from partc.verify.passages import Passage, find_text, own_passages, read_passages
from partc.verify.reference import open_reference
from partc.verify.report import Cost
from partc.verify.uncut import UncutModel

GENERATION = "text-generation"
_OWN = "text that the original writes"


@dataclass(frozen=True)
class CostMeasurement:
    """A measurement that is ready to begin; nothing heavy is loaded yet."""

    config: ModelConfig
    manifest: Role
    """The manifest of the source of the build."""
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
        if self.config.task != GENERATION:
            return cost_of_outputs(self.config, model, full, built_in_requests(self.manifest), progress)
        passages = self.passages or own_passages(full, self.prompts, self.tokens, progress)
        return cost_of_text(self.config, model, full, passages, self.text, progress)


def choose_measurement(
    build: Path, config: ModelConfig, manifest: Role, requests: Requests, text: Path | None, most: int
) -> CostMeasurement:
    """The measurement on the given text, else on the model's own sample, else on the original's answers to `requests`.

    Args:
        build: the bundle, whose source has the tokenizer.
        config: the original.
        manifest: of the source.
        requests: the requests to the ring.
        text: a file of text.
        most: tokens of a text to predict.

    Raises:
        UserError: the text cannot be used.
    """
    if config.task != GENERATION:
        if text is not None:
            raise UserError(
                f"the model is for {config.task}: no text can be predicted",
                where=str(text),
                hint="leave out --text: its outputs are compared",
            )
        return CostMeasurement(config, manifest, (), (), "")
    folder = build / "devices" / manifest.source
    tokenizer, readable = Tokenizer(folder), (folder / TOKENIZER_FILE).is_file()
    if text is not None and not readable:
        raise UserError(
            "the build has no tokenizer, so it takes no text",
            where=str(text),
            hint="leave out --text: the model is then measured on text that the original writes",
        )
    if (file := find_text(config, text)) is not None and readable:
        passages = read_passages(file, tokenizer, manifest.model, most)
        return CostMeasurement(config, manifest, (), passages, file.name)
    count = requests.count(manifest.model)
    prompts = tokenizer.encode(requests.texts) if requests.texts else built_in_prompts(manifest.model, count)
    return CostMeasurement(config, manifest, prompts, (), _OWN, count)
