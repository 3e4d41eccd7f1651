"""Tensors of a checkpoint that make no parameter of the model: known to be of no use, or named in an error.

| of no use | who says so |
| --- | --- |
| what transformers itself leaves out | `_keys_to_ignore_on_load_unexpected` of the model's class and its parts |
| tables that old versions stored and that are computed | `_COMPUTED` |
| layers that draft further tokens (MTP) | `num_nextn_predict_layers` of config.json, `_DRAFTS` |
| heads and towers of other tasks | the other classes that transformers has for this config |
| what the user leaves out | `ignore_tensors` in model.yaml |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from partc.errors import ModelError
from partc.frontend.quantized.methods import QUANTIZED_KEY, UNQUANTISED

Reached = Callable[[PreTrainedModel, Iterable[str]], set[str]]
"""Those of some keys that make a parameter of a model."""

_COMPUTED = re.compile(
    r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$|(^|\.)rope\.freqs$"
    r"|(^|\.)position_ids$|(^|\.)token_type_ids$"
    r"|(^|\.)num_batches_tracked$|\._extra_state$"
    r"|(^|\.)(encoder|decoder)\.(version|embed_positions\._float_tensor)$"
)
"""Tables of positions, counters and versions that old checkpoints hold."""
_MASK = re.compile(r"(attn|attention)\.(bias|masked_bias)$|(^|\.)causal_mask$")
"""Causal masks [1, 1, rows, columns], and the number that stands for minus infinity in them."""
_DRAFTS = re.compile(r"(^|\.)mtp(_layers)?\.")
"""Modules that draft further tokens, by the name that most families give them."""
_LAYER = re.compile(r"(^|\.)(layers|h|blocks?)\.(\d+)\.")
_SHOWN = 3
"""Keys that a message names."""


@dataclass(frozen=True)
class _Fault:
    """A kind of key that says what is wrong with the whole checkpoint."""

    pattern: re.Pattern[str]
    what: str
    hint: str


_FAULTS = (
    _Fault(
        re.compile(r"^base_model\.model\.|\.lora_|\.base_layer\.|modules_to_save\."),
        "holds weights of an adapter (LoRA) that are not merged into the model",
        "merge them with peft: PeftModel.from_pretrained(...).merge_and_unload().save_pretrained(FOLDER)",
    ),
    _Fault(QUANTIZED_KEY, "is quantised", UNQUANTISED),
    _Fault(
        re.compile(r"^(module|_orig_mod|_fsdp_wrapped_module|_forward_module)\."),
        "was saved from inside a wrapper (DistributedDataParallel, torch.compile, …), whose name stands before "
        "those of its tensors",
        "save the model itself: unwrapped.save_pretrained(FOLDER), where `unwrapped` is the wrapper's .module",
    ),
)


def explain_unused(
    network: PreTrainedModel,
    keys: Mapping[str, tuple[int, ...]],
    folder: Path,
    ignored: Sequence[str],
    reached: Reached,
    *,
    only_known_faults: bool = False,
) -> None:
    """Refuse a checkpoint that has tensors which are neither used nor known to be of no use.

    Args:
        network: the model.
        keys: the tensors that make none of its parameters, with their shapes.
        folder: the checkpoint, for messages.
        ignored: patterns of tensors that the user leaves out.
        reached: tells which keys make a parameter of another model.
        only_known_faults: leave tensors alone whose names do not say what is wrong.

    Raises:
        ModelError: names the kind of tensors, the first of them, and the way out.
    """
    left = [key for key in _unknown(network, keys) if not any(fnmatchcase(key, name) for name in ignored)]
    for fault in _FAULTS:
        if found := [key for key in left if fault.pattern.search(key)]:
            raise ModelError(
                f"the checkpoint {fault.what}: {_listed(found)}", where=str(folder), hint=fault.hint
            )
    if only_known_faults:
        return
    if left and (left := sorted(set(left) - _of_other_tasks(network, left, reached))):
        raise _not_used(network, left, folder)
    for pattern in ignored:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ModelError(
                f"`ignore_tensors` leaves out {pattern!r}, and no tensor that is of no use has such a name",
                where=str(folder),
                hint="remove the pattern, or write the name as the checkpoint has it",
            )


CONFIG = "config.json"
"""Where the settings of a checkpoint stand that is no one file."""


def settings_of(place: Path) -> str:
    """Where the settings of a model stand, in words."""
    return "its header" if place.suffix == ".gguf" else CONFIG


def _not_used(network: PreTrainedModel, keys: Sequence[str], folder: Path) -> ModelError:
    """The error about tensors that nobody knows."""
    count, settings = _layers(network), settings_of(folder)
    of_layers = sorted(
        {int(found[3]) for key in keys if (found := _LAYER.search(key)) and int(found[3]) >= count}
    )
    if of_layers and count:
        several = f"layers {of_layers[0]} to {of_layers[-1]}" if of_layers[1:] else f"layer {of_layers[0]}"
        has = f"{count} layer{'s' * (count > 1)}"
        message = f"the checkpoint has tensors of {several}, but by {settings} the model has {has}"
        hint = f"write the number of layers that the checkpoint has in {settings} ({of_layers[-1] + 1})"
    else:
        message = f"the model does not use {len(keys)} tensor{'s' * (len(keys) > 1)} of the checkpoint"
        hint = f"is {settings} that of this checkpoint?"
    leave_out = "to leave such tensors out, write `ignore_tensors: [PATTERN]` in model.yaml"
    return ModelError(f"{message}: {_listed(keys)}", where=str(folder), hint=f"{hint}; {leave_out}")


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{', '.join(keys[:_SHOWN])}{more}"


def _unknown(network: PreTrainedModel, keys: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The keys that neither transformers nor the tables above name."""
    patterns = [*(network._keys_to_ignore_on_load_unexpected or ())]
    ignored = [re.compile(pattern) for pattern in patterns]
    drafts = _draft_layers(network)

    def known(key: str) -> bool:
        layer = _LAYER.search(key)
        return bool(
            _COMPUTED.search(key)
            or (_MASK.search(key) and len(keys[key]) in (0, 4))
            or _DRAFTS.search(key)
            or any(pattern.search(key) for pattern in ignored)
            or (layer and int(layer[3]) in drafts)
        )

    return [key for key in keys if not known(key)]


def _layers(network: PreTrainedModel) -> int:
    """Number of layers by config.json; 0: it does not say."""
    text = network.config.get_text_config(decoder=True)
    return int(getattr(text, "num_hidden_layers", None) or 0)


def _draft_layers(network: PreTrainedModel) -> range:
    """Numbers of the layers behind the last one that draft further tokens (DeepSeek V3, GLM 4 MoE)."""
    text, count = network.config.get_text_config(decoder=True), _layers(network)
    return range(count, count + int(getattr(text, "num_nextn_predict_layers", None) or 0))


def _of_other_tasks(network: PreTrainedModel, keys: Sequence[str], reached: Reached) -> set[str]:
    """Those of the keys that belong to another model of the same config: a head, a pooler, a tower."""
    found: set[str] = set()
    for kind in _classes(network.config):
        if isinstance(network, kind) or found.issuperset(keys):
            continue
        try:
            with torch.device("meta"):
                other = kind._from_config(network.config)
        except Exception:  # its code wants something that this config does not have
            continue
        found |= reached(other, keys)
    return found


def _classes(config: Any) -> Iterator[Any]:
    """Every class of transformers for a config, each once, that of config.json's `architectures` first."""
    import transformers

    seen: set[Any] = set()
    named = [getattr(transformers, name, None) for name in getattr(config, "architectures", None) or ()]
    mappings = [
        value
        for name, value in vars(modeling_auto).items()
        if re.fullmatch(r"MODEL_(FOR_\w+_)?MAPPING", name)
    ]
    for kind in [*named, *(mapping.get(type(config), None) for mapping in mappings)]:
        for one in kind if isinstance(kind, tuple) else (kind,):
            if isinstance(one, type) and issubclass(one, PreTrainedModel) and one not in seen:
                seen.add(one)
                yield one
