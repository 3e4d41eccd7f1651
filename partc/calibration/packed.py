"""A checkpoint folder with matrices in 4 bits, as compressed-tensors has it: `pack-quantized`, a form of many runtimes.

| tensor | is |
| --- | --- |
| `M.weight_packed` | i32[N, K / 8], eight values + 8 in a word, the first in its lowest bits |
| `M.weight_scale` | the checkpoint's floats, [N, K / block] |
| `M.weight_shape` | i64[2], N and K |
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from partc.calibration.rounding import Rounded

_BESIDE = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "chat_template*",
    "*processor_config.json", "LICENSE*", "README.md", "sample.txt",
)  # fmt: skip
"""Files of a checkpoint that belong to its quantised form, too."""


def packed(found: Rounded, dtype: torch.dtype) -> dict[str, Tensor]:
    """End of a tensor's name → the tensor, for one matrix."""
    rows, columns = found.values.shape
    fields = (found.values.to(torch.int32) + 8).reshape(rows, columns // 8, 8)
    words = torch.zeros(rows, columns // 8, dtype=torch.int32)
    for place in range(8):
        words |= fields[..., place] << (4 * place)
    shape = torch.tensor([rows, columns], dtype=torch.int64)
    return {"weight_packed": words, "weight_scale": found.scales.to(dtype), "weight_shape": shape}


def write_folder(
    network: Any, matrices: Mapping[str, Rounded], block: int, source: Path, folder: Path
) -> None:
    """Write the checkpoint and what lies beside its weights; `folder` is empty.

    Args:
        network: a network of transformers.
        matrices: name of a linear module → its weight; all other weights stay as they are.
        block: weights that share a scale.
        source: the checkpoint that it was made from.
        folder: the place for it.
    """
    state = dict(network.state_dict())
    for name, found in matrices.items():
        dtype = state.pop(f"{name}.weight").dtype
        state |= {f"{name}.{end}": tensor for end, tensor in packed(found, dtype).items()}
    network.save_pretrained(folder, state_dict=state)
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    linear = [name for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)]
    plain = dict.fromkeys([*_plain_matrices(folder), *(name for name in linear if name not in matrices)])
    config["quantization_config"] = _described(block, list(plain))
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in sorted(source.iterdir()):
        if path.is_file() and any(path.match(pattern) for pattern in _BESIDE):
            shutil.copyfile(path, folder / path.name)


def _plain_matrices(folder: Path) -> list[str]:
    """The modules whose matrices are written as floats: a list of experts is one tensor in memory, and many here."""
    found: list[str] = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.endswith(".weight")]  # noqa: SIM118  # no mapping
            found += [
                name.removesuffix(".weight") for name in names if len(file.get_slice(name).get_shape()) == 2
            ]
    return found


def _described(block: int, ignored: list[str]) -> dict[str, Any]:
    weights = {
        "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": block, "dynamic": False,
        "observer": "minmax",
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ignored,
    }
