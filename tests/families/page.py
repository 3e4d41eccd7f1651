"""docs/families.md: one section for each target and precision, rewritten by the run that measures it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

_COMPILED = (
    "give the tokens of transformers: 64 greedy tokens after prompts of 1, 7 and 33, alone, three requests at\n"
    "once and prompts in parts, with logits and every cut within 1e-4 of the largest value, or as near to\n"
    "transformers in 64 bits as it is in 32 bits."
)
_PROOF = {
    "ort": "give the tokens of transformers: 64 greedy tokens after prompts of 1, 7 and 33, alone, three requests at\n"
    "once and prompts in parts, with logits and every cut within 1e-4 of the largest value, and with all negative\n"
    "controls passed. Where transformers in 32 bits is further than that from itself in 64 bits, the ring must be as\n"
    "near to the latter.",
    "tvm": _COMPILED,
    "opencl": _COMPILED,
}
_QUANTIZED = (
    "give the tokens of the uncut model of the same quantisation: 32 greedy tokens after prompts of 1, 7 and 33,\n"
    "alone, at once and in a batch, with logits within 2 % of the largest value. Controls: quantising changes the\n"
    "logits, and spoiled weights the tokens."
)

_TENSORS = (
    "give the outputs of transformers for a batch of two: outputs and every value that crosses a link are within\n"
    "1e-4 of the largest value, nothing of the picture or of the sound crosses one, and all negative controls pass."
)
_SOURCES = (
    "give the tokens of transformers: 24 greedy tokens for sources of 1, 7 and 33 tokens, or three sounds, alone, at\n"
    "once and in a batch, with logits and every cut within 1e-4 of the largest value, and with all negative controls\n"
    "passed."
)
_QUANTIZED_SOURCES = (
    "give the tokens of the uncut model of the same quantisation: 24 greedy tokens for sources of 1, 7 and 33\n"
    "tokens, or three sounds, alone, at once and in a batch, and all negative controls pass."
)
_MEDIA = (
    "give the tokens of transformers: 24 greedy tokens for three prompts with a picture or a sound at their beginning\n"
    "or among them, and one without, alone and at once, with logits and every cut within 1e-4 of the largest value,\n"
    "and with all negative controls passed."
)
_QUANTIZED_MEDIA = (
    "give the tokens of the uncut model of the same quantisation: 24 greedy tokens for three prompts with a picture\n"
    "or a sound, and one without, alone and at once, and all negative controls pass."
)
_NAMED = "\nOnly the families named in this section were run."
_QUANTIZED_TENSORS = (
    "give the outputs of the uncut model of the same quantisation for a batch of two, within 2 % of the largest\n"
    "value; nothing of the picture or of the sound crosses a link, and all negative controls pass."
)


Models = Literal["decoders", "tensors", "sources", "media"]
PREFIXES: dict[Models, str] = {
    "decoders": "Target",
    "tensors": "Pictures and sound, target",
    "sources": "Encoder-decoders, target",
    "media": "Pictures and sound among tokens, target",
}
"""How the titles of their sections begin."""


@dataclass(frozen=True)
class Kind:
    """What families are compiled to."""

    target: str
    quantize: str | None = None
    """int8, int4 or None."""
    models: Models = "decoders"
    """Causal language models, encoders of pictures and sound, encoder-decoders, or models that read pictures or sound
    among their tokens."""

    @property
    def title(self) -> str:
        """`Target tvm, int4`."""
        kind = PREFIXES[self.models]
        return f"{kind} {self.target}, {self.quantize}" if self.quantize else f"{kind} {self.target}"

    @property
    def command(self) -> str:
        """The command that writes the section."""
        kind = "" if self.models == "decoders" else f" --{self.models}"
        target = "" if self.target == "ort" else f" --target {self.target}"
        quantize = f" --quantize {self.quantize}" if self.quantize else ""
        return f"python -m tests.families{kind}{target}{quantize}"

    @property
    def proof(self) -> str:
        """What counts."""
        proofs = {
            "decoders": (_PROOF[self.target], _QUANTIZED),
            "tensors": (_TENSORS, _QUANTIZED_TENSORS),
            "sources": (_SOURCES, _QUANTIZED_SOURCES),
            "media": (_MEDIA, _QUANTIZED_MEDIA),
        }
        return proofs[self.models][self.quantize is not None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a family."""

    family: str
    verdict: str
    """counts | weak (a control changed nothing) | differs | refused | cannot be made tiny | crashed"""
    detail: str
    seconds: float


def read_outcomes(file: Path) -> list[Outcome]:
    """Outcomes as `write_outcomes` wrote them."""
    return [Outcome(**fields) for fields in json.loads(file.read_text())]


def write_outcomes(file: Path, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes as JSON."""
    file.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")


def section(kind: Kind, outcomes: Sequence[Outcome], *, whole: bool = True) -> str:
    """The section of a run: the families that count in one paragraph, the rest with reasons.

    A run that is not `whole` was of named families: it says nothing about the others.
    """
    counted = [f"`{outcome.family}`" for outcome in outcomes if outcome.verdict == "counts"]
    made = sum(outcome.verdict != "cannot be made tiny" for outcome in outcomes)
    command, alone = (kind.command, "") if whole else (f"{kind.command} FAMILY …", _NAMED)
    text = f"""## {kind.title}

Written by `{command} --markdown docs/families.md`.{alone} Of {len(outcomes)} families, {made} can be made tiny from a
configuration; {len(counted)} of those are compiled for three devices with no code of their own, and
{kind.proof}

{", ".join(counted)}.
"""
    rest = [outcome for outcome in outcomes if outcome.verdict != "counts"]
    if not rest:
        return text
    rows = [f"| `{o.family}` | {o.verdict} | {_short(o.detail)} |" for o in rest]
    return "\n".join([text, "| family | verdict | reason |", "|---|---|---|", *rows]) + "\n"


def write_section(page: Path, new: str) -> None:
    """Put a section into the page in the place of the one with its title, or behind the others of its models."""
    head, *sections = page.read_text().split("\n## ")
    kept = {text.partition("\n")[0]: text.rstrip("\n") for text in sections}
    kept[new.partition("\n")[0].removeprefix("## ")] = new.removeprefix("## ").rstrip("\n")
    ordered = [kept[title] for title in sorted(kept, key=_models_of)]
    page.write_text("\n\n## ".join([head.rstrip("\n"), *ordered]) + "\n")


def _models_of(title: str) -> int:
    """The place of a section among those of other models: decoders, encoders, encoder-decoders, media, others."""
    prefixes = [f"{prefix} " for prefix in PREFIXES.values()]
    return next((place for place, prefix in enumerate(prefixes) if title.startswith(prefix)), len(prefixes))


def _short(detail: str) -> str:
    """The reason alone: the table says which model, and the section which task."""
    reason = re.sub(r"^ModelError: .* cannot be traced as [^ ]+: ", "", detail.split(" hint: ")[0])
    return reason[:160].replace("|", "/")
