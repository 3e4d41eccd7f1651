"""Kernels of GPUs that are worth more than TVM's own schedules.

| file | does |
| --- | --- |
| `product.py` | which of the next three multiplies, and what writes it for nodes |
| `few_rows.py` | products of up to 4 rows, and of rows of experts |
| `tensor_product.py`, `tensor_weights.py` | products of many rows on tensor cores |
| `tile_product.py` | the same without them |
| `shapes.py` | what products have in common |
| `attention.py`, `attention_tiles.py`, `attention_step.py` | attention: a query a block, 16 of them, one with its row |
| `recurrent.py` | convolutions and linear attention with a state |
| `gather.py` | rows of tables |
| `threads.py` | the vocabulary of all: blocks, threads, what they share |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from partc.ir.operators import ATTENTION, CAUSAL_CONV, LINEAR_ATTENTION, QUANTIZED_ATTENTION
from targets.tvm.builder import Emitter
from targets.tvm.gpu.kernels.attention import attention, quantized_attention
from targets.tvm.gpu.kernels.attention_step import ATTENTION_STEP, attention_step
from targets.tvm.gpu.kernels.gather import gather, gather_columns
from targets.tvm.gpu.kernels.product import product_operators
from targets.tvm.gpu.kernels.recurrent import causal_conv, linear_attention
from targets.tvm.machine import Machine

_LOOKING_UP = 256
"""Threads of a block that copies a row of a table, at most."""


def gpu_operators(machine: Machine) -> Mapping[str, Emitter]:
    """Operator → what writes it for the GPU of a machine."""
    threads = min(machine.most_threads, _LOOKING_UP)
    return {
        ATTENTION.name: partial(attention, machine.most_threads),
        QUANTIZED_ATTENTION.name: partial(quantized_attention, machine.most_threads),
        ATTENTION_STEP: partial(attention_step, machine.most_threads),
        CAUSAL_CONV.name: causal_conv,
        LINEAR_ATTENTION.name: linear_attention,
        "tvm.QuantizedRows": partial(gather, threads),
        "tvm.GatherColumns": partial(gather_columns, threads),
        **product_operators(machine),
    }
