"""Checkpoints that are quantised already, refused by name before anything is imported.

partc quantises by itself, from plain weights: `quantize` in model.yaml. The formats of others are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from partc.errors import ModelError

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
_NAMES = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "fp8": "float8 (fp8)",
    "fbgemm_fp8": "float8 (fbgemm_fp8)",
    "mxfp4": "MXFP4",
    "modelopt": "ModelOpt",
}
"""Methods of `quantization_config` as people call them."""


def refuse_quantized(config: Mapping[str, Any], where: str) -> None:
    """Refuse a model whose config says that it is quantised.

    Raises:
        ModelError: names the method, and the key that says so.
    """
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        described = part.get("quantization_config") or part.get("compression_config")
        if isinstance(described, dict) and (method := _method(described)):
            raise ModelError(
                f"the checkpoint is quantised by {method}, which partc does not read",
                where=f"{where}: quantization_config",
                hint=f"{UNQUANTISED}; if its weights are plain after all, remove quantization_config from config.json",
            )


def _method(described: Mapping[str, Any]) -> str | None:
    """The method of a `quantization_config`; None where it says that nothing is quantised."""
    method = described.get("quant_method")
    if method is None:
        if described.get("load_in_4bit") or described.get("load_in_8bit"):
            method = "bitsandbytes"
        else:
            method = (
                described.get("quant_algo") or described.get("format") or ("bits" in described and "gptq")
            )
    return _NAMES.get(str(method), str(method)) if method and method != "none" else None
