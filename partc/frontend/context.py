"""The longest sequence that a model can be compiled for: its positions, and how far rotary tables are fixed.

| kind of rotary table | fixed up to |
| --- | --- |
| default, proportional, and models without such tables | `max_position_embeddings` |
| linear, yarn, llama3 | `factor` times the length of training, or `max_position_embeddings` where that is more |
| longrope | the length of training, behind which the long factors apply (to the end where both are the same) |
| dynamic | `max_position_embeddings`, behind which the table depends on the length |

The length of training is `original_max_position_embeddings`, else `max_position_embeddings`. Behind the last two
transformers computes a prompt again with other tables once it crosses the border; a cache that is kept cannot follow.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from partc.config.model import ModelConfig
from partc.errors import ModelError

_Rope = dict[str, Any]


def check_context(model: PretrainedConfig, config: ModelConfig) -> None:
    """Refuse sequences that are longer than the model has positions for.

    Raises:
        ModelError: names both lengths, and what would help.
    """
    text = model.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return
    kinds = _kinds(text)
    for kind in kinds:
        _check_numbers(kind)
    limit = min((_limit(kind, positions) for kind in kinds), default=positions)
    if limit >= config.max_sequence:
        return
    changing = next(
        (kind for kind in kinds if _type(kind) in _CHANGING and _limit(kind, positions) == limit), None
    )
    if changing is not None:
        raise ModelError(
            f"the model's rotary tables change behind {limit} tokens ({_type(changing)}), "
            f"and max_sequence is {config.max_sequence}",
            where=config.sequence_place,
            hint=f"write max_sequence: {limit} or less; tables of the types yarn and linear stay the same, "
            "if the model was trained for one of them",
        )
    unknown = next((_type(kind) for kind in kinds if _type(kind) not in _KNOWN), None)
    scaling = (
        "" if kinds == [] else "; rope scaling of type yarn in config.json extends what it has positions for"
    )
    if unknown is not None:
        scaling = (
            f"; the rope scaling in config.json is of the type {unknown!r}, which transformers does not have"
        )
    raise ModelError(
        f"max_sequence is {config.max_sequence}, but the model has positions for {limit} tokens",
        where=config.sequence_place,
        hint=f"write max_sequence: {limit} or less{scaling}",
    )


def with_fixed_tables(model: PretrainedConfig) -> PretrainedConfig:
    """The config for sequences that `check_context` has let pass: no table depends on their length any more.

    A dynamic table is the plain one up to `max_position_embeddings`, and its code could not be traced.
    """
    if not any(_type(kind) == "dynamic" for kind in _kinds(model.get_text_config())):
        return model
    fixed = copy.deepcopy(model)
    for kind in _kinds(fixed.get_text_config()):
        if _type(kind) == "dynamic":
            kind["rope_type"] = "default"
    return fixed


def _kinds(text: PretrainedConfig) -> list[_Rope]:
    """The rotary tables of a config, one for each kind of layer where they differ; empty: the model has none."""
    parameters = getattr(text, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return []
    nested: list[_Rope] = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]


def _check_numbers(rope: _Rope) -> None:
    """Refuse a scaling whose figures are none; transformers would compute with some of them."""
    for key in ("factor", "original_max_position_embeddings"):
        value = rope.get(key)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise ModelError(
                f"{key} of the rope scaling should be a number above 0, but is {value!r}",
                where=f"config.json: rope_scaling.{key}",
                hint="write it without quotes, as the model was trained",
            )


def _type(rope: _Rope) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def _limit(rope: _Rope, positions: int) -> int:
    """The number of tokens up to which a table is fixed."""
    limit = _LIMITS.get(_type(rope))
    return positions if limit is None else limit(rope, positions)


def _scaled(rope: _Rope, positions: int) -> int:
    trained = rope.get("original_max_position_embeddings") or positions
    return max(positions, int(trained * float(rope.get("factor") or 1)))


def _short(rope: _Rope, positions: int) -> int:
    if rope.get("short_factor") == rope.get("long_factor"):
        return positions
    return min(positions, int(rope.get("original_max_position_embeddings") or positions))


_LIMITS: dict[str, Callable[[_Rope, int], int]] = {
    "linear": _scaled,
    "yarn": _scaled,
    "llama3": _scaled,
    "longrope": _short,
}
_KNOWN = {*ROPE_INIT_FUNCTIONS, "default"}
_CHANGING = ("longrope", "dynamic")
"""Types of tables that depend on the length of the sequence."""
