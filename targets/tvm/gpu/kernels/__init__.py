"""Kernels of GPUs that are worth more than TVM's own schedules: products with weights, attention, recurrences."""

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
