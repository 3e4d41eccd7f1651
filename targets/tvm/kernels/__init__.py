"""Kernels that are written by hand for processors: products, attention over the cache, normalisation, activations.

Each file holds kernels of one kind and the emitters that use them; `cpu_operators` is what a processor's table of
operators is overlaid with. A kernel says in its docstring how many bytes it moves and how many operations it does.

| file | kernels |
| --- | --- |
| `matmul.py`, `float_tiles.py` | products with weights of floats; how much of them stays in registers |
| `quantized.py`, `quantized_format.py`, `quantized_tiles.py` | products with weights of 4 and 8 bits; sizes, tiles |
| `quantize_activations.py` | activations as bytes, for those products |
| `quantized_experts.py` | the product of each row with the matrix of its expert |
| `gather.py`, `quantized_gather.py` | rows of tables that lie in panels |
| `attention.py`, `attention_sizes.py` | attention; its sizes, tasks and tiles |
| `update_state.py`, `cache_rows.py` | new rows into caches; the same rows in 8 bits |
| `recurrent.py` | causal convolutions and linear attention, whose states are rewritten as a whole |
| `recurrent_chunks.py` | linear attention over prompts, 16 tokens at a time |
| `rotary.py`, `normalise.py`, `activate.py` | rotary embedding, norms, activation functions |
| `vector.py`, `words.py` | what all share: functions of vectors; numbers within words |
| `script.py` | kernels written by Python that runs |
| `instructions/` | sums of products of bytes for each instruction set, and the choice of one |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from partc.ir.operators import CAUSAL_CONV, LINEAR_ATTENTION, QUANTIZE_ROWS, UPDATE_STATE
from targets.tvm.builder import Emitter
from targets.tvm.kernels.activate import GATED, activation, gated
from targets.tvm.kernels.attention import attention, quantized_attention
from targets.tvm.kernels.cache_rows import quantize_cache_rows
from targets.tvm.kernels.float_tiles import tile_of
from targets.tvm.kernels.gather import gather_columns
from targets.tvm.kernels.instructions import instructions_of
from targets.tvm.kernels.matmul import gated_product, matmul, product_plus, products
from targets.tvm.kernels.normalise import layer_normalization, rms_normalization
from targets.tvm.kernels.quantized import quantized_operators
from targets.tvm.kernels.recurrent import causal_conv, linear_attention
from targets.tvm.kernels.rotary import rotary_embedding
from targets.tvm.kernels.update_state import panels, update_panels, update_state
from targets.tvm.machine import Machine
from targets.tvm.panels import PANEL_ATTENTION, PANEL_QUANTIZED_ATTENTION, PANELS, UPDATE_PANELS

_PLAIN: Mapping[str, Emitter] = {
    CAUSAL_CONV.name: causal_conv,
    "Gelu": activation,
    GATED: gated,
    "LayerNormalization": layer_normalization,
    LINEAR_ATTENTION.name: linear_attention,
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
    "Swish": activation,
    PANELS: panels,
    QUANTIZE_ROWS.name: quantize_cache_rows,
    UPDATE_PANELS: update_panels,
    UPDATE_STATE.name: update_state,
    "tvm.GatherColumns": gather_columns,
}
"""Operator → what writes it for any processor."""
_TILED: Mapping[str, Callable[..., Any]] = {
    "MatMul": matmul,
    PANEL_ATTENTION: attention,
    PANEL_QUANTIZED_ATTENTION: quantized_attention,
    "tvm.GatedProduct": gated_product,
    "tvm.ProductPlus": product_plus,
    "tvm.Products": products,
}
"""The same for products of float32, which are told their tile."""


def cpu_operators(machine: Machine) -> Mapping[str, Emitter]:
    """Operator → what writes it for the processor of a machine."""
    tile = tile_of(machine)
    tiled = {name: partial(write, tile=tile) for name, write in _TILED.items()}
    return {**_PLAIN, **tiled, **quantized_operators(instructions_of(machine))}
