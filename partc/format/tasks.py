"""What models are for, by the names of the hub."""

from __future__ import annotations

GENERATING = (
    "text-generation",
    "text2text-generation",
    "automatic-speech-recognition",
    "image-text-to-text",
    "audio-text-to-text",
)
"""Tasks whose models make one token after the other: a step for the prompt, and one for every token behind it."""

WITH_SOURCE = ("text2text-generation", "automatic-speech-recognition")
"""Those of them whose models read a text or a sound as a whole first, and answer behind tokens of their own."""

IMAGE_TEXT, AUDIO_TEXT = WITH_MEDIA = ("image-text-to-text", "audio-text-to-text")
"""Those whose models read a picture or a sound among the tokens of their prompt."""

INPUT_IDS = "input_ids"
"""Input of a model of texts: token ids i64[batch, sequence]."""

SOURCE_IDS, SOURCE_LENGTH = "source_ids", "source_length"
"""Inputs of a model that reads a text first: token ids i64[batch, source], of which so many are valid, i64[batch]."""

SOURCE = "source"
"""The symbol of the tokens of a source."""

TASKS = (
    *GENERATING,
    "text-classification",
    "feature-extraction",
    "image-classification",
    "audio-classification",
    "graph",
)

TASK_PATTERN = f"^({'|'.join(TASKS)})$"
"""Matches them, for the formats of files."""


def generates(task: str) -> bool:
    """Whether models of a task make tokens."""
    return task in GENERATING
