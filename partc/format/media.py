"""Names that preprocessors and models give to the tensors of a picture or a sound."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from partc.format.dtypes import Array

_PREFIXES = ("", "image_", "audio_")
"""Beginnings of a model's names, where it takes several kinds; the rest is the preprocessor's own name."""


USUAL_SIZE = (448, 448)
"""Height and width of the blank picture that a preprocessor is asked about where it takes pictures of any size."""


def blank_picture(size: tuple[int, int]) -> Array:
    """A black picture of a height and a width, as preprocessors take them: u8[height, width, 3]."""
    return np.zeros((*size, 3), np.uint8)


def argument_of(key: str, accepted: Collection[str]) -> str | None:
    """The input of a model for what a preprocessor calls `key`; None: the model has none.

    >>> argument_of("pixel_values", ["input_ids", "image_pixel_values"])
    'image_pixel_values'
    """
    return next((name for prefix in _PREFIXES if (name := prefix + key) in accepted), None)
