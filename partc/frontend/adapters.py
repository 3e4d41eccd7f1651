"""Adapters (LoRA) of peft, merged into the weights while they are read, in the order of `merge_and_unload`.

| in the adapter | the weight becomes |
| --- | --- |
| `M.lora_A.weight`, `M.lora_B.weight` | W + (B · A) · scale |
| `M.lora_embedding_A`, `M.lora_embedding_B` | W + (B · A)ᵀ · scale |
| the first two and `M.lora_magnitude_vector` | DoRA: the rows of that, made as long as the vector says |
| `M.weight`, `M.bias` | what is stored in their place (`modules_to_save`, `bias`) |

scale = alpha / r, or alpha / √r with `use_rslora`; `rank_pattern` and `alpha_pattern` name modules with others. What
cannot be merged, or would change another model than the adapter was trained for, is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from partc.config.checkpoint_folder import ADAPTER_FILE
from partc.config.sources import Adapter
from partc.errors import ModelError
from partc.format.json_text import read_json
from partc.frontend.quantized.parts import turned
from partc.frontend.safetensors import SafetensorsFile, StoredTensor
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.weights import ENCODINGS, Join, Leaf, WeightExpr, has_step

WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_KEY = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(\.(?P<bias>bias)|\.weight)?$"
)
_CHANGED_BASE = ("pissa", "eva", "olora", "loftq", "corda", "lora_ga")
"""Ways to begin that change the weights of the model, too."""
_UNMERGEABLE: Mapping[str, str] = {
    "target_parameters": "parameters that are no module's weight",
    "trainable_token_indices": "single tokens",
    "alora_invocation_tokens": "answers from a token on (activated LoRA)",
    "megatron_config": "layers of Megatron",
    "layer_replication": "layers that are there several times",
    "use_qalora": "groups of inputs (QALoRA)",
}
"""Setting → what such an adapter changes that merging cannot."""


@dataclass(frozen=True)
class _Opened:
    """The files of one adapter."""

    where: Path
    settings: Mapping[str, Any]
    stored: Mapping[str, StoredTensor]
    scale: float
    dequantize: bool

    def leaf(self, key: str) -> Leaf:
        return Leaf(str((self.where / WEIGHTS_FILE).resolve()), key)

    def error(self, message: str, hint: str) -> ModelError:
        return ModelError(message, where=str(self.where), hint=hint)


def merge_adapter(network: PreTrainedModel, tensors: dict[str, SymbolicTensor], adapter: Adapter) -> None:
    """Merge an adapter into the tensors of a checkpoint, which are named as the parameters of `network`, in place.

    Raises:
        ModelError: it is of a kind that cannot be merged, or is not for this model: names the tensor.
    """
    opened = _open(adapter)
    loras: dict[str, dict[str, str]] = {}
    for key in opened.stored:
        match = _KEY.match(key)
        if match is None:
            _replace(opened, key, network, tensors)
        elif match["bias"]:
            raise opened.error(
                f"{key} is a bias of the adapter itself (lora_bias)",
                "merge it with peft, and give the result",
            )
        else:
            loras.setdefault(match["module"], {})[match["part"]] = key
    for module, parts in loras.items():
        name = f"{_plain(module)}.weight"
        if name not in tensors:
            raise opened.error(
                f"{module} is no module of the model", f"is this an adapter of {network.config.model_type}?"
            )
        tensors[name] = _merged(opened, module, parts, tensors[name], _is_turned(network, _plain(module)))


def _open(adapter: Adapter) -> _Opened:
    folder = adapter.folder
    settings = read_json(folder / ADAPTER_FILE, ModelError, "download the adapter again")
    if not isinstance(settings, dict):
        raise ModelError("not the settings of an adapter", where=str(folder / ADAPTER_FILE))
    _check_kind(settings, folder)
    if not (folder / WEIGHTS_FILE).is_file():
        raise ModelError(
            f"no {WEIGHTS_FILE}, and adapters are read from safetensors only",
            where=str(folder),
            hint="save it with peft: PeftModel.save_pretrained(FOLDER, safe_serialization=True)",
        )
    file = SafetensorsFile(folder / WEIGHTS_FILE)
    stored = {key: file.entry(key) for key in file.names()}
    return _Opened(folder, settings, stored, adapter.scale, adapter.dequantize)


def _check_kind(settings: Mapping[str, Any], folder: Path) -> None:
    kind = settings.get("peft_type")
    if kind != "LORA":
        raise ModelError(
            f"the adapter is of the kind {kind!r}, which cannot be merged here",
            where=str(folder / ADAPTER_FILE),
            hint="adapters of the kind LORA are (plain, rsLoRA and DoRA); merge others with peft",
        )
    for key, what in _UNMERGEABLE.items():
        if settings.get(key):
            raise ModelError(
                f"the adapter changes {what}: {key}",
                where=str(folder / ADAPTER_FILE),
                hint="merge it with peft, where that can, and give the result",
            )
    begun = settings.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(_CHANGED_BASE):
        raise ModelError(
            f"the adapter was begun with {begun}, which changes the weights of the model, too",
            where=str(folder / ADAPTER_FILE),
            hint="convert it as peft's documentation says (path_initial_model_for_weight_conversion)",
        )


def _plain(module: str) -> str:
    return module.removeprefix(_PREFIX)


def _is_turned(network: PreTrainedModel, module: str) -> bool:
    """Whether a module holds its matrix as inputs × outputs (`Conv1D` of GPT-2)."""
    return type(network.get_submodule(module)).__name__ == "Conv1D"


def _replace(opened: _Opened, key: str, network: PreTrainedModel, tensors: dict[str, SymbolicTensor]) -> None:
    """Put a tensor that was trained whole in the place of the model's."""
    if key.endswith(".base_layer.weight"):  # the unchanged table beside an adapter of embeddings
        return
    name, stored = _plain(key).replace(".base_layer.", "."), opened.stored[key]
    own = tensors.get(name)
    parameters = dict(network.named_parameters(remove_duplicate=False))
    if name not in parameters:
        raise opened.error(
            f"{key} is no parameter of the model", f"is this an adapter of {network.config.model_type}?"
        )
    shape = tuple(parameters[name].shape) if own is None else own.shape
    if stored.shape != shape:
        raise _unlike(opened, key, stored.shape, shape)
    tensors[name] = SymbolicTensor(opened.leaf(key), stored.shape, stored.dtype)


def _merged(
    opened: _Opened, module: str, parts: Mapping[str, str], base: SymbolicTensor, is_turned: bool
) -> SymbolicTensor:
    down, up = _factors(opened, module, parts)
    outputs, inputs = opened.stored[up].shape[0], opened.stored[down].shape[-1]
    rank = opened.stored[down].shape[0]
    is_table = "lora_embedding_A" in parts
    shape = (inputs, outputs) if is_turned or is_table else (outputs, inputs)
    if opened.stored[up].shape != (outputs, rank) or base.shape != shape:
        raise _unlike(opened, module, shape, base.shape)
    if has_step(base.expr, *ENCODINGS, "float8") and not opened.dequantize:
        raise opened.error(
            f"{_plain(module)} is quantised in the checkpoint, and an adapter changes floats",
            "give the checkpoint in safetensors that it was trained on, or write "
            "`adapters: [{folder: …, dequantize: true}]`, which makes floats of what it changes",
        )
    scale = _scale(opened, module, rank)
    weight = base.T.expr if is_turned else base.expr
    a: WeightExpr = opened.leaf(down)
    b: WeightExpr = opened.leaf(up)
    if is_table:
        a, b = turned(b), turned(a)
    if (magnitude := parts.get("lora_magnitude_vector")) is not None:
        if is_table:
            raise opened.error(f"{module} is a table with a magnitude (DoRA)", "merge it with peft")
        merged = Join("dora", scale, (weight, b, a, opened.leaf(magnitude)))
    else:
        merged = Join("lora", scale, (weight, b, a))
    return SymbolicTensor(turned(merged) if is_turned else merged, base.shape, "f32")


def _factors(opened: _Opened, module: str, parts: Mapping[str, str]) -> tuple[str, str]:
    """The keys of A and B, both matrices."""
    for first, second in (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")):
        if first in parts and second in parts:
            for part in (first, second):
                if len(opened.stored[parts[part]].shape) != 2:
                    raise opened.error(
                        f"{parts[part]} is no matrix", "adapters of convolutions: merge with peft"
                    )
            return parts[first], parts[second]
    raise opened.error(f"{module} lacks one of its two factors", "download the adapter again")


def _scale(opened: _Opened, module: str, rank: int) -> float:
    get = opened.settings.get
    r = _by_pattern(get("rank_pattern"), module, int(get("r", rank)))
    alpha = _by_pattern(get("alpha_pattern"), module, get("lora_alpha", 1))
    if r != rank:
        raise opened.error(
            f"{module} has the rank {rank}, and by {ADAPTER_FILE} {r}", "download the adapter again"
        )
    return opened.scale * float(alpha) / (math.sqrt(r) if get("use_rslora") else r)


def _by_pattern(patterns: object, module: str, otherwise: Any) -> Any:
    """The value of the first pattern that a module's name ends as, in the sense of peft."""
    if isinstance(patterns, Mapping):
        for pattern, value in patterns.items():
            if re.match(rf"(.*\.)?({pattern})$", _plain(module)):
                return value
    return otherwise


def _unlike(opened: _Opened, key: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> ModelError:
    return opened.error(
        f"{_plain(key)} is {list(wanted)} in the model, and {list(found)} in the adapter",
        "is this an adapter of this model?",
    )
