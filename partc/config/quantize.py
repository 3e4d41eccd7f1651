"""`quantize:` of model.yaml: a precision for all weights, or one each for layers, head, embeddings and caches."""

from __future__ import annotations

from collections.abc import Mapping

from partc.config.section import Section, describe
from partc.ir.quantization import ANEW, BLOCKWISE, NONE, STORED, Quantization

PRECISIONS = (NONE, *sorted(ANEW, reverse=True), STORED)
CACHES = (NONE, "int8")
"""Precisions of the caches of keys and values."""
KEYS = ("weights", "head", "embeddings", "otherwise", "block", "cache")
BLOCKS = (16, 32, 64, 128, 256)
"""Blocks that engines have kernels for."""


def read_quantization(top: Section) -> Quantization | None:
    """The value of `quantize`; None where nothing is to be quantised.

    Raises:
        ConfigError: an unknown precision or key, a block that is none of `BLOCKS`, or one without blocks.
    """
    if top.data.get("quantize") is None:  # YAML reads a bare `null` as nothing, which can only mean none
        return None
    if not isinstance(top.data["quantize"], Mapping):
        whole = top.choice("quantize", PRECISIONS, NONE)
        return _unless_none(Quantization(whole, whole, whole))
    section = top.section("quantize")
    section.allow(KEYS)
    weights = section.choice("weights", PRECISIONS, NONE)
    head, embeddings = (section.choice(key, PRECISIONS, weights) for key in ("head", "embeddings"))
    otherwise = section.choice("otherwise", (NONE, *ANEW), NONE)
    if "otherwise" in section and STORED not in (weights, head, embeddings):
        raise section.error(
            "`otherwise` is the precision of what is not stored as integers",
            "otherwise",
            hint="write `quantize: {weights: stored, otherwise: int8}`, or remove this line",
        )
    block = _block(section, weights, head, embeddings, otherwise)
    cache = section.choice("cache", CACHES, NONE)
    return _unless_none(Quantization(weights, head, embeddings, block, otherwise, cache))


def _block(section: Section, *precisions: str) -> int:
    block = section.data.get("block", Quantization.block)
    if type(block) is not int or block not in BLOCKS:  # true and 32.0 are equal to whole numbers
        choices = ", ".join(str(size) for size in BLOCKS)
        raise section.error(f"a block cannot be {describe(block)}", "block", hint=f"write one of {choices}")
    if "block" in section and BLOCKWISE.isdisjoint(precisions):
        names = " or ".join(sorted(BLOCKWISE))
        raise section.error(
            f"only {names} have blocks: others have one scale for each output channel",
            "block",
            hint=f"remove this line, or write {names}",
        )
    return block


def _unless_none(quantization: Quantization) -> Quantization | None:
    return quantization if quantization.has_weights or quantization.cache != NONE else None
