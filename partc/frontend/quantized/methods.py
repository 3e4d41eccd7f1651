"""Who quantised a checkpoint, by its config, and what each method stores of a matrix.

What is not read is refused by method and key before anything is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from partc.errors import ModelError
from partc.frontend.quantized import awq, bitsandbytes, compressed, float8, gptq, mxfp4
from partc.frontend.quantized.parts import Parts, Settings
from partc.frontend.symbolic import SymbolicTensor

UNQUANTISED = (
    "give the checkpoint that it was made from, in float32, float16 or bfloat16, and write `quantize: int4` or "
    "`quantize: int8` in model.yaml"
)
"""The way out."""
QUANTIZED_KEY = re.compile(
    r"\.(qweight|qzeros|g_idx|weight_packed|weight_shape|weight_zero_point|weight_scale(_inv|_2)?|input_scale"
    r"|SCB|absmax|quant_map|nested_absmax|quant_state\.\w+|\w+_(blocks|scales))$"
    r"|\.weight\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+)$"
)
"""Keys that only quantised checkpoints have."""


@dataclass(frozen=True)
class Matrix:
    """A way to store one matrix."""

    marks: frozenset[str]
    """Parts one of which only this way has."""
    parts: tuple[str, ...]
    """The last part of the name of all that belongs to it."""
    read: Callable[[Parts], SymbolicTensor]
    joint: str = "."
    """What stands between the name of the module or parameter and that of a part."""
    result: str = "weight"
    """What the matrix is called behind the module's name; empty: as the module."""


@dataclass(frozen=True)
class Method:
    """Who quantised a checkpoint."""

    name: str
    """As people call it."""
    matrices: tuple[Matrix, ...]
    reads: str
    """The part of it that is read, for the manual."""
    kept: str = "floats"
    """The integers of it that stay as they are, for the manual."""
    unused: tuple[str, ...] = ()
    """Parts that say how activations are rounded, which stay floats here."""
    refuse: Callable[[Settings], str | None] = lambda settings: None
    """What of its settings is not read, if anything is."""


def _one_of(key: str, allowed: Iterable[str], default: str) -> Callable[[Settings], str | None]:
    def refuse(settings: Settings) -> str | None:
        value = str(settings.get(key) or default).lower()
        return None if value in allowed else f"{key}: {value}"

    return refuse


def _no_number(settings: Settings, *keys: str) -> str | None:
    """The first of these settings that is there and no whole number."""
    found = (key for key in keys if type(settings.get(key, 0)) is not int)
    return next((f"{key}: {settings[key]!r}" for key in found), None)


def _gptq(settings: Settings) -> str | None:
    bits = settings.get("bits", 4)
    if (refused := _no_number(settings, "bits", "group_size")) is not None:
        return refused
    if bits not in (2, 3, 4, 8):
        return f"bits: {bits}"
    if settings.get("is_marlin_format"):
        return "is_marlin_format"
    return _one_of("checkpoint_format", gptq.FORMATS, "gptq")(settings)


def _awq(settings: Settings) -> str | None:
    if (refused := _no_number(settings, "bits", "w_bit", "group_size", "q_group_size")) is not None:
        return refused
    bits = settings.get("bits", settings.get("w_bit", 4))
    return f"bits: {bits}" if bits != 4 else _one_of("version", awq.VERSIONS, "gemm")(settings)


def _compressed(settings: Settings) -> str | None:
    unknown = sorted(compressed.formats(settings) - set(compressed.FORMATS))
    sparsity = settings.get("sparsity_config") or {}
    sparse = sparsity.get("format") if isinstance(sparsity, dict) else sparsity
    if unknown:
        return f"format: {unknown[0]}"
    return f"sparsity_config.format: {sparse}" if sparse not in (None, "dense") else None


def _modelopt(settings: Settings) -> str | None:
    return _one_of("quant_algo", ("fp8", "fp8_pb_wo"), "")(settings)


_FLOAT8 = Matrix(frozenset({"weight_scale_inv", "weight_scale"}), float8.PARTS, float8.weight)
_SCALES_OF_ACTIVATIONS = (
    "input_scale",
    "input_zero_point",
    "output_scale",
    "activation_scale",
    "k_scale",
    "v_scale",
)
METHODS: Mapping[str, Method] = {
    "gptq": Method(
        "GPTQ",
        (Matrix(frozenset({"qweight"}), gptq.PARTS, gptq.weight),),
        "2, 3, 4 and 8 bits, groups or whole rows, zero points, act order; `checkpoint_format: gptq`, `gptq_v2`",
        "groups of 16 and more, rows, inputs in order",
        refuse=_gptq,
    ),
    "awq": Method(
        "AWQ",
        (Matrix(frozenset({"qweight"}), awq.PARTS, awq.weight),),
        "4 bits, `version: gemm`",
        "groups of 16 and more",
        refuse=_awq,
    ),
    "compressed-tensors": Method(
        "compressed-tensors",
        (
            Matrix(frozenset({"weight_packed"}), compressed.PACKED, compressed.packed_weight),
            Matrix(frozenset({"weight_scale"}), compressed.PLAIN, compressed.plain_weight),
        ),
        "`pack-quantized` of 2 to 8 bits, `int-quantized`, `float-quantized`, `naive-quantized`; groups, rows or whole "
        "matrices, zero points, permuted inputs",
        "groups of 16 and more, rows, inputs in order",
        _SCALES_OF_ACTIVATIONS,
        _compressed,
    ),
    "fp8": Method(
        "float8 (fp8)",
        (_FLOAT8,),
        "E4M3 with scales of blocks, rows or matrices",
        unused=_SCALES_OF_ACTIVATIONS,
    ),
    "fbgemm_fp8": Method(
        "float8 (fbgemm_fp8)",
        (_FLOAT8,),
        "E4M3 with scales of rows",
        unused=("input_scale_ub", *_SCALES_OF_ACTIVATIONS),
    ),
    "modelopt": Method(
        "ModelOpt", (_FLOAT8,), "`quant_algo: FP8`", unused=_SCALES_OF_ACTIVATIONS, refuse=_modelopt
    ),
    "mxfp4": Method(
        "MXFP4",
        (Matrix(frozenset({"blocks"}), mxfp4.PARTS, mxfp4.weight, joint="_", result=""),),
        "the experts of gpt-oss",
        "kept",
    ),
    "bitsandbytes": Method(
        "bitsandbytes",
        (Matrix(frozenset({"weight.absmax", "SCB"}), bitsandbytes.PARTS, bitsandbytes.weight),),
        "NF4 and FP4, scales quantised again or not; int8 (`SCB`)",
        "int8",
    ),
}
"""Methods of `quantization_config` that are read."""


@dataclass(frozen=True)
class Quantized:
    """The method of a checkpoint, and its settings."""

    method: Method
    settings: Settings
    is_sure: bool = True
    """Whether config.json says so; a file beside it may be left over from another checkpoint."""


def quantized_by(config: Mapping[str, Any], where: str, folder: Path | None = None) -> Quantized | None:
    """The method of the model whose config this is; None: it is not quantised.

    Raises:
        ModelError: it is quantised by a method, or in a way, that is not read; names the key that says so.
    """
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        described = part.get("quantization_config") or part.get("compression_config")
        if isinstance(described, dict) and (name := _name(described)):
            return _known(name, described, f"{where}: quantization_config")
    beside = folder / "quantize_config.json" if folder is not None else None
    if beside is not None and beside.is_file():  # as AutoGPTQ saved it
        try:
            found = _known("gptq", json.loads(beside.read_text(encoding="utf-8")), str(beside))
            return replace(found, is_sure=False)
        except ValueError as error:
            raise ModelError(f"not JSON: {error}", where=str(beside), hint="download it again") from error
    return None


def _known(name: str, settings: Settings, where: str) -> Quantized:
    method = METHODS.get(name)
    if method is None:
        raise ModelError(
            f"the checkpoint is quantised by {name}, which partc does not read",
            where=where,
            hint=f"{UNQUANTISED}; if its weights are plain after all, remove quantization_config from config.json",
        )
    if (unread := method.refuse(settings)) is not None:
        raise ModelError(
            f"the checkpoint is quantised by {method.name} with `{unread}`, which partc does not read",
            where=where,
            hint=f"{UNQUANTISED}; docs/checkpoints.md lists what is read",
        )
    return Quantized(method, settings)


def _name(described: Settings) -> str | None:
    """The method of a `quantization_config`; None where it says that nothing is quantised."""
    name = described.get("quant_method")
    if name is None:
        if described.get("load_in_4bit") or described.get("load_in_8bit"):
            name = "bitsandbytes"
        else:
            name = (
                ("quant_algo" in described and "modelopt")
                or ("config_groups" in described and "compressed-tensors")
                or described.get("format")
                or ("bits" in described and "gptq")
            )
    return str(name) if name and name != "none" else None
