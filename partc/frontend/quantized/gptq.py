"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel save it.

| part | shape | holds |
| --- | --- | --- |
| qweight | i32[K · b / 32, N] | a stream of integers of b bits down each column, the lowest bits first |
| qzeros | i32[groups, N · b / 32] | zero points; format `gptq` stores them less 1, `gptq_v2` as they are |
| scales | f16[groups, N] | |
| g_idx | i32[K] | the group of each input; in order unless `desc_act` |
"""

from __future__ import annotations

from functools import partial

from partc.frontend.quantized.parts import (
    Parts,
    common_value,
    in_order,
    picked,
    scaled,
    shifted,
    turned,
)
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.encodings.numbers import bits as fields
from partc.ir.weights import Array, Leaf, Step, WeightExpr

PARTS = ("qweight", "qzeros", "scales", "g_idx")
FORMATS = ("gptq", "gptq_v2")
"""Values of `checkpoint_format` that are read."""


def weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of a module.

    Raises:
        ModelError: parts are missing or do not fit together, or a zero point has no place in its bits.
    """
    bits = int(parts.settings.get("bits", 4))
    height, columns = parts.words("qweight")
    inputs = height * 32 // bits
    groups = parts.matrix("scales")[0]
    block = _block(parts, inputs, groups)
    parts.scales("scales")
    parts.words("qzeros")
    data: WeightExpr = Step("bits", (bits,), turned(parts.expr("qweight")))
    scale = turned(parts.expr("scales"))
    offset = 0 if parts.settings.get("checkpoint_format") == "gptq_v2" else 1
    packed = fields(parts.values("qzeros"), bits)[:, :columns]
    if packed.shape != (groups, columns):
        raise parts.error(f"has zero points for {list(packed.shape)}, and scales for {[groups, columns]}")
    if offset and int(packed.max(initial=0)) == 2**bits - 1:
        raise parts.error(
            f"stores the zero point {2**bits - 1} + 1, which {bits} bits do not have",
            hint="write the checkpoint with `checkpoint_format: gptq_v2`, or quantise it symmetrically",
        )
    same = common_value(packed)
    if same is not None:
        data = shifted(data, -(same + offset))
    zeros = None if same is not None else _zeros(parts, bits, columns, offset)
    index = parts.values("g_idx") if "g_idx" in parts else None
    if index is not None and index.size == 0 and not parts.settings.get("desc_act"):
        index = None  # written by some where nothing is permuted
    if index is None or (index.size == inputs and in_order(index, block)):
        return scaled((columns, inputs), block, data, scale, zeros)
    _check_index(parts, index, inputs, groups)
    by_input = partial(picked, index=Leaf(parts.tensor("g_idx").file, parts.key("g_idx")))
    every = by_input(scale), None if zeros is None else by_input(zeros)
    return scaled((columns, inputs), 1, data, *every)


def _block(parts: Parts, inputs: int, groups: int) -> int:
    """Inputs of a group."""
    wanted = int(parts.settings.get("group_size", -1))
    block = inputs if wanted <= 0 else wanted
    if -(-inputs // block) != groups:
        raise parts.error(
            f"has scales for {groups} groups, but {inputs} inputs in groups of {block} need {-(-inputs // block)}",
            hint="does `group_size` of quantization_config belong to this checkpoint?",
        )
    return block


def _zeros(parts: Parts, bits: int, columns: int, offset: int) -> WeightExpr:
    """Zero points [N, groups]."""
    stream = Step("bits", (bits,), parts.expr("qzeros"))
    return turned(shifted(Step("slice", (1, 0, columns), stream), offset))


def _check_index(parts: Parts, index: Array, inputs: int, groups: int) -> None:
    if index.size != inputs or int(index.min()) < 0 or int(index.max()) >= groups:
        raise parts.error(
            f"has a g_idx that does not name one of {groups} groups for each of {inputs} inputs"
        )
