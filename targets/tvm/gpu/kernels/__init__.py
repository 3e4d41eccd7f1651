"""Kernels of GPUs that are worth more than TVM's own schedules: products with weights, attention."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from partc.ir.operators import ATTENTION, QUANTIZED_ATTENTION
from targets.tvm.builder import Emitter
from targets.tvm.gpu.kernels.attention import attention, quantized_attention
from targets.tvm.gpu.kernels.gather import gather, gather_columns
from targets.tvm.gpu.kernels.product import product_operators
from targets.tvm.machine import Machine


def gpu_operators(machine: Machine) -> Mapping[str, Emitter]:
    """Operator → what writes it for the GPU of a machine."""
    return {
        ATTENTION.name: attention,
        QUANTIZED_ATTENTION.name: quantized_attention,
        "tvm.QuantizedRows": partial(gather, threads=machine.most_threads),
        "tvm.GatherColumns": partial(gather_columns, threads=machine.most_threads),
        **product_operators(machine.most_threads),
    }
