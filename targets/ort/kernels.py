"""Whether onnxruntime has a kernel for every node, asked of the onnxruntime that is installed.

That has the CPU's kernels. A GPU's are not installed here; its provider has kernels for the same operators, in float16
and bfloat16 too, and what it lacks runs on the CPU's. Products of integers alone have none on a GPU that are fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from partc.errors import UserError
from partc.format.dtypes import ELEMENT_TYPES
from partc.ir.graph import Graph, Node
from partc.ir.whole import is_whole

_TYPES = {row.short: f"tensor({row.onnx_name})" for row in ELEMENT_TYPES}
_ON_GPU = {"f16": "tensor(float)", "bf16": "tensor(float)"}
"""Element types for which a GPU has what the CPU has for another."""
_WIDER = {"tensor(float16)": "tensor(float)"}
"""The type to which onnxruntime casts by itself where a kernel is missing."""


@dataclass(frozen=True)
class _Kernel:
    versions: tuple[int, int]
    types: Mapping[str, frozenset[str]]
    """Type parameter (`T`) → the types it takes."""


def check_kernels(graph: Graph, on_gpu: bool = False) -> None:
    """Refuse a node that onnxruntime cannot run.

    Raises:
        UserError: names node, operator and element types.
    """
    kernels = _cpu_kernels()
    for node in graph.nodes:
        if is_whole(node.op):  # onnxruntime checks the graphs inside when it loads them
            continue
        if on_gpu:
            _check_gpu(node)
        domain, _, op = node.op.rpartition(".")
        version = graph.opset if not domain else 1
        types = {**_TYPES, **_ON_GPU} if on_gpu else _TYPES
        if not _has_kernel(node, kernels.get((domain, op), ()), domain, op, version, types):
            listed = ", ".join(value.dtype or "?" for value in node.operands)
            raise UserError(
                f"onnxruntime's CPU provider has no kernel for {node.op}({listed})",
                where=node.place,
                hint="use dtype: float32, or put this part on another target",
            )


def _check_gpu(node: Node) -> None:
    if node.op == "com.microsoft.MatMulIntegerToFloat":
        raise UserError(
            f"GPUs have no kernel for {node.op}",
            where=node.place,
            hint="use quantize: int4 or none for this device",
        )


def _has_kernel(
    node: Node, kernels: Iterable[_Kernel], domain: str, op: str, version: int, types: Mapping[str, str]
) -> bool:
    formals = _type_parameters(domain, op, version)
    used = {
        formal: types[value.dtype]
        for formal, value in zip(_repeat_last(formals, len(node.inputs)), node.inputs, strict=False)
        if value is not None and value.dtype is not None
    }
    fits = any(
        kernel.versions[0] <= version <= kernel.versions[1] and _takes(kernel, used) for kernel in kernels
    )
    has_bfloat16 = "tensor(bfloat16)" in used.values()
    return fits or (_is_function(domain, op, version) and not has_bfloat16)


def _takes(kernel: _Kernel, used: Mapping[str, str]) -> bool:
    for formal, dtype in used.items():
        allowed = kernel.types.get(formal)
        if allowed is not None and dtype not in allowed and _WIDER.get(dtype) not in allowed:
            return False
    return True


def _repeat_last(formals: list[str], count: int) -> list[str]:
    """Variadic operators name their last parameter once."""
    return formals + formals[-1:] * (count - len(formals))


@cache
def _cpu_kernels() -> dict[tuple[str, str], tuple[_Kernel, ...]]:
    import onnxruntime.capi._pybind_state as state

    found: dict[tuple[str, str], list[_Kernel]] = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            types = {name: frozenset(allowed) for name, allowed in kernel.type_constraints.items()}
            domain = "" if kernel.domain == "ai.onnx" else kernel.domain
            found[domain, kernel.op_name].append(_Kernel(tuple(kernel.version_range), types))
    return {key: tuple(kernels) for key, kernels in found.items()}


@cache
def _runtime_schemas() -> dict[tuple[str, str], Any]:
    import onnxruntime.capi._pybind_state as state

    return {
        (schema.domain, schema.name): schema for schema in state.get_all_operator_schema() if schema.domain
    }


@cache
def _type_parameters(domain: str, op: str, version: int) -> list[str]:
    """The type parameter of each input, in order."""
    if not domain and onnx.defs.has(op, version, ""):
        return [formal.type_str for formal in onnx.defs.get_schema(op, version, "").inputs]
    schema = _runtime_schemas().get((domain, op))
    return [formal.typeStr for formal in schema.inputs] if schema is not None else []


def _is_function(domain: str, op: str, version: int) -> bool:
    """Whether onnxruntime can expand the operator into others."""
    if domain or not onnx.defs.has(op, version, ""):
        return False
    schema: Any = onnx.defs.get_schema(op, version, "")
    return bool(schema.has_function or schema.has_context_dependent_function)
