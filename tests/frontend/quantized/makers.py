"""Checkpoints as others quantise them, made of a plain one, and the floats that each stands for.

The floats come from the library that owns the format where there is one here (compressed-tensors, transformers, torch),
else from integers, zero points and scales before they are packed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
Parts = tuple[Tensors, torch.Tensor]
"""What is stored of a matrix, by the end of its name, and its floats."""
_RNG_SEED = 7
_LAYER = re.compile(r"\.(layers?|block)\.\d+\..*(?<!bias)\.weight$")
"""Matrices of layers, but for tables of biases of attention."""


@dataclass(frozen=True)
class Maker:
    """A way to quantise."""

    settings: Mapping[str, Any]
    """`quantization_config`."""
    make: Callable[[np.random.Generator, int, int], Parts]
    """Parts and floats of a matrix of so many rows and columns."""
    joint: str = "."
    extra: Tensors = field(default_factory=dict)


def quantise_folder(plain: Path, folder: Path, maker: Maker) -> Tensors:
    """Write the checkpoint with every matrix of its layers quantised; returns the floats of all parameters."""
    shutil.copytree(plain, folder, dirs_exist_ok=True)
    rng = np.random.default_rng(_RNG_SEED)
    stored: Tensors = {}
    floats: Tensors = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if tensor.ndim != 2 or not _LAYER.search(name) or tensor.shape[1] % 32 or tensor.shape[0] % 8:
            stored[name] = floats[name] = tensor.clone()
            continue
        parts, floats[name] = maker.make(rng, *tensor.shape)
        module = name.removesuffix(".weight")
        stored.update({f"{module}{maker.joint}{end}": part.contiguous() for end, part in parts.items()})
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = dict(maker.settings)
    (folder / "config.json").write_text(json.dumps(config))
    return floats


def pack_words(fields: np.ndarray, bits: int) -> np.ndarray:
    """Integers along the last axis as one stream of bits in words of 32, the lowest bits first."""
    rows = fields.reshape(-1, fields.shape[-1])
    words = []
    for row in rows:
        stream = 0
        for place, value in enumerate(row):
            stream |= int(value) << (place * bits)
        many = -(-row.size * bits // 32)
        words.append(np.frombuffer(stream.to_bytes(many * 4, "little"), "<i4"))
    return np.stack(words).reshape(*fields.shape[:-1], -1)


def _integers(rng: np.random.Generator, bits: int, *shape: int) -> np.ndarray:
    return rng.integers(0, 2**bits, shape)


def _scales(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.random(shape) * 0.02 + 1e-4).astype(np.float16)


def gptq(bits: int, group: int, *, symmetric: bool, v2: bool = False, act_order: bool = False) -> Maker:
    """GPTQ; the floats as gptqmodel's `dequantize_weight` has them: scales[g] · (q - zeros[g])."""
    settings = {
        "quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order,
        "checkpoint_format": "gptq_v2" if v2 else "gptq",
    }  # fmt: skip

    def make(rng: np.random.Generator, rows: int, columns: int) -> Parts:
        groups = 1 if group < 0 else columns // group
        q = _integers(rng, bits, columns, rows)
        most = 2**bits - (0 if v2 else 1)
        z = np.full((groups, rows), 2 ** (bits - 1)) if symmetric else rng.integers(1, most, (groups, rows))
        s = _scales(rng, groups, rows)
        index = np.arange(columns) // (columns if group < 0 else group)
        if act_order:
            index = rng.permutation(index)
        floats = (q - z[index]).astype(np.float32) * s[index].astype(np.float32)
        parts = {
            "qweight": pack_words(q.T, bits).T, "qzeros": pack_words(z if v2 else z - 1, bits), "scales": s,
            "g_idx": index.astype(np.int32),
        }  # fmt: skip
        return _tensors(parts), torch.from_numpy(floats.T.copy())

    return Maker(settings, make)


def awq(group: int) -> Maker:
    """AWQ for its gemm kernel."""
    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    nibbles = (0, 2, 4, 6, 1, 3, 5, 7)  # nibble i of a word holds output nibbles[i] of its 8

    def packed(values: np.ndarray) -> np.ndarray:
        eights = values.reshape(len(values), -1, 8)[..., list(nibbles)]
        return pack_words(eights.reshape(len(values), -1), 4)

    def make(rng: np.random.Generator, rows: int, columns: int) -> Parts:
        q, z = _integers(rng, 4, columns, rows), _integers(rng, 4, columns // group, rows)
        s = _scales(rng, columns // group, rows)
        index = np.arange(columns) // group
        floats = (q - z[index]).astype(np.float32) * s[index].astype(np.float32)
        return _tensors({"qweight": packed(q), "qzeros": packed(z), "scales": s}), torch.from_numpy(
            floats.T.copy()
        )

    return Maker(settings, make)


def compressed(bits: int, group: int | None, *, symmetric: bool, form: str = "pack-quantized") -> Maker:
    """compressed-tensors, packed and unpacked by the library itself, which is fed with float32 scales."""
    from compressed_tensors.compressors import (
        FloatQuantizationCompressor,
        IntQuantizationCompressor,
        PackedQuantizationCompressor,
    )
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    weights = {
        "num_bits": bits, "type": "float" if form.startswith("float") else "int", "symmetric": symmetric,
        "strategy": "channel" if group is None else "group", "group_size": group,
    }  # fmt: skip
    settings = {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"],
    }  # fmt: skip
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    library = {
        "pack-quantized": PackedQuantizationCompressor, "int-quantized": IntQuantizationCompressor,
        "float-quantized": FloatQuantizationCompressor,
    }[form]  # fmt: skip

    def make(rng: np.random.Generator, rows: int, columns: int) -> Parts:
        groups = 1 if group is None else columns // group
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1)
        state = {
            "weight": torch.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32)),
            "weight_scale": torch.from_numpy(_scales(rng, rows, groups).astype(np.float32)) * 10,
        }
        if not symmetric:
            state["weight_zero_point"] = torch.from_numpy(
                rng.integers(least, most, (rows, groups)).astype(np.int8)
            )
        stored = library.compress(dict(state), scheme)
        return dict(stored), library.decompress(dict(stored), scheme)["weight"].float()

    return Maker(settings, make)


def float8(block: tuple[int, int] | None, method: str = "fp8") -> Maker:
    """Floats of 8 bits with scales of blocks, or of rows; casts are torch's."""
    settings: dict[str, Any] = {"quant_method": method, "weight_block_size": block and list(block)}

    def make(rng: np.random.Generator, rows: int, columns: int) -> Parts:
        down, across = block or (1, columns)
        stored = torch.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32)).to(
            torch.float8_e4m3fn
        )
        shape = -(-rows // down), -(-columns // across)
        scale = torch.from_numpy(rng.random(shape).astype(np.float32) * 0.1)
        whole = scale.repeat_interleave(down, 0)[:rows].repeat_interleave(across, 1)[:, :columns]
        name = "weight_scale_inv" if block else "weight_scale"
        return {"weight": stored, name: scale}, stored.float() * whole

    return Maker(settings, make)


def nf4(*, nested: bool) -> Maker:
    """bitsandbytes' NF4; scales quantised again where `nested`."""
    table = torch.tensor([
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ])  # fmt: skip

    def make(rng: np.random.Generator, rows: int, columns: int) -> Parts:
        q = _integers(rng, 4, rows * columns)
        blocks = rows * columns // 64
        state: dict[str, Any] = {
            "quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [rows, columns],
        }  # fmt: skip
        parts: dict[str, Any] = {"weight": (q[::2] << 4 | q[1::2]).astype(np.uint8)[:, None]}
        if nested:
            index, numbers = rng.integers(0, 256, blocks).astype(np.uint8), rng.random(256).astype(np.float32)
            outer, offset = rng.random(-(-blocks // 256)).astype(np.float32) + 0.1, np.float32(0.013)
            absmax = numbers[index] * np.repeat(outer, 256)[:blocks] + offset
            state |= {"nested_blocksize": 256, "nested_offset": float(offset), "nested_dtype": "float32"}
            parts |= {
                "weight.absmax": index,
                "weight.nested_absmax": outer,
                "weight.nested_quant_map": numbers,
            }
        else:
            absmax = rng.random(blocks).astype(np.float32)
            parts["weight.absmax"] = absmax
        parts["weight.quant_map"] = table.numpy()
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        parts["weight.quant_state.bitsandbytes__nf4"] = text
        floats = table[torch.from_numpy(q)] * torch.from_numpy(absmax).repeat_interleave(64)
        return _tensors(parts), floats.reshape(rows, columns)

    return Maker({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, make)


def _tensors(parts: Mapping[str, np.ndarray]) -> Tensors:
    return {name: torch.from_numpy(np.ascontiguousarray(part).copy()) for name, part in parts.items()}


def makers() -> Iterator[tuple[str, Callable[[], Maker]]]:
    """Every way by a name; libraries are loaded when a maker is made."""
    for bits in (2, 3, 4, 8):
        yield f"gptq-{bits}", partial(gptq, bits, 32, symmetric=True)
    yield "gptq-zeros", lambda: gptq(4, 32, symmetric=False)
    yield "gptq-v2", lambda: gptq(4, 64, symmetric=False, v2=True)
    yield "gptq-rows", lambda: gptq(4, -1, symmetric=False)
    yield "gptq-act-order", lambda: gptq(4, 32, symmetric=False, act_order=True)
    yield "gptq-act-order-symmetric", lambda: gptq(4, 32, symmetric=True, act_order=True)
    yield "awq", lambda: awq(32)
    for bits in (2, 3, 4, 5, 6, 8):
        yield f"compressed-{bits}", partial(compressed, bits, 32, symmetric=True)
    yield "compressed-zeros", lambda: compressed(4, 32, symmetric=False)
    yield "compressed-rows", lambda: compressed(4, None, symmetric=True)
    yield "compressed-int8", lambda: compressed(8, None, symmetric=True, form="int-quantized")
    yield "compressed-float8", lambda: compressed(8, None, symmetric=True, form="float-quantized")
    yield "fp8-blocks", lambda: float8((128, 128))
    yield "fp8-cut-blocks", lambda: float8((48, 40))
    yield "fp8-rows", lambda: float8(None, "fbgemm_fp8")
    yield "nf4", lambda: nf4(nested=False)
    yield "nf4-nested", lambda: nf4(nested=True)


MAKERS: dict[str, Callable[[], Maker]] = dict(makers())
