"""Checkpoints as people find them: each with one oddity, and what has to come of it.

`EQUAL`: every parameter is the one that transformers loads, so that the tokens are equal. A pattern: the checkpoint is
refused, and the message and its hint have these words.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.families.check import save_tiny
from tests.families.tiny import tiny_config

EQUAL = ""
Tensors = dict[str, torch.Tensor]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98765\n"
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True)
class Oddity:
    """One oddity of a checkpoint."""

    make: Callable[[Path], None]
    """Gives it to a sound checkpoint."""
    expected: str
    """`EQUAL`, or a pattern of the message."""
    family: str = "llama"
    task: str = "text-generation"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of model.yaml."""


def save_sound(family: str, folder: Path) -> None:
    """Write the checkpoint that oddities are given to: two layers, a head of its own."""
    fields = {**tiny_config("llama" if family == "bert" else family), **_FIELDS.get(family, {})}
    if family in _BUILDERS:
        _BUILDERS[family](folder)
        return
    fields |= {"num_hidden_layers": 2} if "num_hidden_layers" in fields else {"n_layer": 2}
    save_tiny({"tie_word_embeddings": False, **fields}, folder)


def _bert(folder: Path) -> None:
    from transformers import BertConfig, BertForPreTraining

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertForPreTraining(BertConfig(vocab_size=97, max_position_embeddings=64, **sizes)).save_pretrained(folder)


def _t5(folder: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    T5ForConditionalGeneration(T5Config(vocab_size=97, decoder_start_token_id=0, **sizes)).save_pretrained(
        folder
    )


_BUILDERS = {"bert": _bert, "t5": _t5}
_FIELDS: dict[str, dict[str, Any]] = {
    "deepseek_v3": {"num_nextn_predict_layers": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
}


def _tensors(change: Callable[[Tensors], None]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        tensors = load_file(folder / _WHOLE)
        change(tensors)
        save_file(
            {key: value.contiguous() for key, value in tensors.items()}, folder / _WHOLE, {"format": "pt"}
        )

    return make


def _config(**fields: Any) -> Callable[[Path], None]:
    """Put keys into config.json; rope scaling is written in the old form, beside `rope_theta`."""

    def make(folder: Path) -> None:
        path = folder / "config.json"
        data = json.loads(path.read_text()) | fields
        if "rope_scaling" in fields:
            data.pop("rope_parameters", None)
            data["rope_theta"] = 10000.0
        path.write_text(json.dumps(data))

    return make


def _all(*makes: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make


def _renamed(rename: Callable[[str], str]) -> Callable[[Path], None]:
    def change(tensors: Tensors) -> None:
        for key in list(tensors):
            tensors[rename(key)] = tensors.pop(key)

    return _tensors(change)


def _add(**extra: torch.Tensor) -> Callable[[Path], None]:
    return _tensors(
        lambda tensors: tensors.update({key.replace("__", "."): value for key, value in extra.items()})
    )


def _copy(
    key: str, to: str, change: Callable[[torch.Tensor], torch.Tensor] = torch.clone
) -> Callable[[Path], None]:
    return _tensors(lambda tensors: tensors.update({to: change(tensors[key])}))


def _drop(key: str) -> Callable[[Path], None]:
    def change(tensors: Tensors) -> None:
        del tensors[key]

    return _tensors(change)


def _file(name: str, content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content(path.read_bytes()))

    return make


def _file_renamed(name: str, other: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).rename(folder / other)

    return make


def _sharded(change: Callable[[dict[str, Tensors], dict[str, str]], None]) -> Callable[[Path], None]:
    """Two shards and their index, which `change` may alter before they are written."""

    def make(folder: Path) -> None:
        tensors = load_file(folder / _WHOLE)
        names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        keys = sorted(tensors)
        shards = {
            names[0]: {key: tensors[key] for key in keys[::2]},
            names[1]: {key: tensors[key] for key in keys[1::2]},
        }
        places = {key: name for name, shard in shards.items() for key in shard}
        change(shards, places)
        (folder / _WHOLE).unlink()
        for name, shard in shards.items():
            save_file({key: value.clone() for key, value in shard.items()}, folder / name, {"format": "pt"})
        if places:
            (folder / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))

    return make


def _twice(factor: float) -> Callable[[dict[str, Tensors], dict[str, str]], None]:
    def change(shards: dict[str, Tensors], places: dict[str, str]) -> None:
        first, second = shards.values()
        first[next(iter(second))] = next(iter(second.values())) * factor

    return change


def _one_shard_without_index(shards: dict[str, Tensors], places: dict[str, str]) -> None:
    shards.pop(next(iter(shards)))
    places.clear()


def _stale_index(folder: Path) -> None:
    shutil.copy(folder / _WHOLE, folder / "kept")
    _sharded(lambda shards, places: shards[next(iter(shards))].popitem() and None)(folder)
    shutil.move(folder / "kept", folder / _WHOLE)


def _quantization(**described: Any) -> Callable[[Path], None]:
    return _config(quantization_config=described)


def _packed(tensors: Tensors) -> None:
    for key in [key for key in tensors if "proj" in key]:
        base, rows = key.removesuffix("weight"), tensors.pop(key).shape[0]
        tensors[f"{base}qweight"] = torch.zeros(8, rows, dtype=torch.int32)
        tensors[f"{base}scales"] = torch.ones(2, rows, dtype=torch.float16)


def _old_buffers(tensors: Tensors) -> None:
    for layer in range(2):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 16, 16, dtype=torch.uint8)
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)


_CODE = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.XForCausalLM"}
_TIED = _config(tie_word_embeddings=True)
_LONGER = {"max_sequence": 128}
_LAYER_1 = "model.layers.1.*"
_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 32}


def _rope(kind: str, **fields: Any) -> Callable[[Path], None]:
    return _config(rope_scaling={"type": kind, **fields}, max_position_embeddings=32)


def _mtp(folder: Path) -> None:
    def change(tensors: Tensors) -> None:
        for key in [key for key in tensors if key.startswith("model.layers.1.")]:
            tensors[key.replace("layers.1.", "layers.2.")] = tensors[key].clone()
        tensors["model.layers.2.eh_proj.weight"] = torch.ones(64, 128)
        tensors["model.layers.2.shared_head.norm.weight"] = torch.ones(64)

    _tensors(change)(folder)


_LORA = "model__layers__0__self_attn__q_proj__"

ODDITIES: dict[str, Oddity] = {
    "tied by config, a head of its own": Oddity(_TIED, EQUAL),
    "tied by config, the same head stored again": Oddity(_all(_TIED, _copy(_EMBEDDING, _HEAD)), EQUAL),
    "tied by config, no head": Oddity(_all(_TIED, _drop(_HEAD)), EQUAL),
    "tied by config, the head alone": Oddity(_all(_TIED, _drop(_EMBEDDING)), EQUAL),
    "tied by config, the head rounded to bfloat16": Oddity(
        _all(_TIED, _copy(_EMBEDDING, _HEAD, lambda tensor: tensor.bfloat16())), EQUAL
    ),
    "not tied, and no head": Oddity(_drop(_HEAD), r"no tensor for lm_head\.weight"),
    "T5 whose decoder has an embedding of its own": Oddity(
        _copy("shared.weight", "decoder.embed_tokens.weight", lambda tensor: tensor * 2), EQUAL,
        "t5", "text2text-generation",
    ),
    "T5 without the shared name": Oddity(
        _all(
            _copy("shared.weight", "encoder.embed_tokens.weight"),
            _copy("shared.weight", "lm_head.weight", lambda tensor: tensor * 3),
            _drop("shared.weight"),
        ),
        EQUAL, "t5", "text2text-generation",
    ),
    "prefix missing": Oddity(_renamed(lambda key: key.removeprefix("model.")), EQUAL),
    "prefix twice": Oddity(_renamed(lambda key: f"model.{key}"), EQUAL),
    "saved inside DistributedDataParallel": Oddity(_renamed(lambda key: f"module.{key}"), "inside a wrapper"),
    "saved inside torch.compile": Oddity(_renamed(lambda key: f"_orig_mod.{key}"), "inside a wrapper"),
    "adapter not merged": Oddity(
        _add(**{f"{_LORA}lora_A__weight": torch.ones(4, 64), f"{_LORA}lora_B__weight": torch.ones(64, 4)}),
        r"adapter \(LoRA\).*lora_A",
    ),
    "names of peft": Oddity(_renamed(lambda key: f"base_model.model.{key}"), r"adapter \(LoRA\)"),
    "index that misses a tensor": Oddity(_sharded(lambda shards, places: places.popitem() and None), EQUAL),
    "index that lists a tensor too many": Oddity(
        _sharded(lambda shards, places: shards[next(iter(shards))].popitem() and None), "the index lists",
    ),
    "equal tensors in two shards": Oddity(_sharded(_twice(1.0)), EQUAL),
    "different tensors in two shards": Oddity(_sharded(_twice(2.0)), "with other values"),
    "one of two shards, no index": Oddity(_sharded(_one_shard_without_index), r"model-00001-of-00002.*is missing"),
    "whole file beside a stale index": Oddity(_stale_index, EQUAL),
    "pickle beside safetensors": Oddity(_file("pytorch_model.bin", b"\x80\x02"), EQUAL),
    "pickle alone": Oddity(
        _file_renamed(_WHOLE, "pytorch_model.bin"), "pickle"
    ),
    "fewer layers in config.json": Oddity(_config(num_hidden_layers=1), r"layer 1, but.*1 layer:.*ignore_tensors"),
    "fewer layers, left out on purpose": Oddity(
        _config(num_hidden_layers=1), EQUAL, options={"ignore_tensors": (_LAYER_1,)}
    ),
    "more layers in config.json": Oddity(_config(num_hidden_layers=3), r"no tensor for model\.layers\.2"),
    "left out what is not there": Oddity(
        lambda folder: None, "no tensor that is of no use", options={"ignore_tensors": (_LAYER_1,)}
    ),
    "layers that draft (MTP)": Oddity(_mtp, EQUAL, "deepseek_v3"),
    "rotary tables of old versions": Oddity(
        _add(**{f"model__layers__{n}__self_attn__rotary_emb__inv_freq": torch.ones(8) for n in range(2)}), EQUAL
    ),
    "causal masks of old versions": Oddity(_tensors(_old_buffers), EQUAL, "gpt2"),
    "heads of pre-training": Oddity(
        _add(bert__embeddings__position_ids=torch.arange(64)[None]), EQUAL, "bert", "feature-extraction"
    ),
    "tensor of an unknown module": Oddity(
        _add(model__layers__0__self_attn__gate__weight=torch.ones(4)), r"does not use 1 tensor.*gate\.weight",
    ),
    "two tensors for one parameter": Oddity(
        _copy("model.norm.weight", "norm.weight", lambda tensor: tensor * 2), "has two tensors"
    ),
    "GPTQ": Oddity(_all(_quantization(quant_method="gptq", bits=4), _tensors(_packed)), "2 groups.*group_size"),
    "AWQ": Oddity(_quantization(quant_method="awq", bits=4, version="gemm"), "AWQ"),
    "compressed-tensors": Oddity(
        _quantization(quant_method="compressed-tensors", format="pack-quantized"), "compressed-tensors"
    ),
    "fp8": Oddity(_quantization(quant_method="fp8", weight_block_size=[128, 128]), "float8"),
    "bitsandbytes": Oddity(_quantization(load_in_4bit=True), "bitsandbytes"),
    "a file of AutoGPTQ beside plain weights": Oddity(_file("quantize_config.json", b'{"bits": 4}'), EQUAL),
    "packed weights, and no word about it": Oddity(_tensors(_packed), "is quantised.*qweight"),
    "float8 weights, and no word about it": Oddity(
        _tensors(lambda tensors: tensors.update({_HEAD: tensors[_HEAD].to(torch.float8_e4m3fn)})), EQUAL
    ),
    "folder of an adapter": Oddity(
        _file_renamed("config.json", "adapter_config.json"),
        r"adapter \(LoRA\).*merge",
    ),
    "pointer of git-lfs for weights": Oddity(_file(_WHOLE, LFS), "pointer of git-lfs.*git lfs pull"),
    "pointer of git-lfs for config.json": Oddity(_file("config.json", LFS), "pointer of git-lfs"),
    "web page for config.json": Oddity(_file("config.json", b"<!DOCTYPE html><html>"), "web page"),
    "byte order mark in config.json": Oddity(
        _file("config.json", lambda content: b"\xef\xbb\xbf" + content), "byte order mark.*sed -i"
    ),
    "config.json in UTF-16": Oddity(
        _file("config.json", lambda content: content.decode().encode("utf-16")), "UTF-16"
    ),
    "code of its own for a known type": Oddity(_config(auto_map=_CODE), EQUAL),
    "code of its own for an unknown type": Oddity(
        _config(auto_map=_CODE, model_type="x"), "code of its own.*no 'x'"
    ),
    "yarn beyond max_position_embeddings": Oddity(
        _rope("yarn", factor=4.0, original_max_position_embeddings=32), EQUAL, options=_LONGER
    ),
    "linear scaling beyond it": Oddity(_rope("linear", factor=4.0), EQUAL, options=_LONGER),
    "llama3 scaling beyond it": Oddity(
        _rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0), EQUAL, options=_LONGER
    ),
    "linear scaling, and more than it gives": Oddity(
        _rope("linear", factor=2.0), "positions for 64 tokens", options=_LONGER
    ),
    "scaling by a text": Oddity(_rope("linear", factor="2"), "should be a number above 0, but is '2'"),
    "scaling by less than nothing": Oddity(_rope("yarn", factor=-4.0), r"above 0, but is -4\.0"),
    "scaling of an unknown type": Oddity(
        _rope("spiral", factor=4.0), "'spiral', which transformers does not have", options=_LONGER
    ),
    "a norm of whole numbers": Oddity(
        _tensors(lambda tensors: tensors.update({"model.norm.weight": torch.ones(64, dtype=torch.int32)})),
        r"model\.norm\.weight is stored as whole numbers \(i32\)",
    ),
    "dynamic scaling beyond it": Oddity(
        _rope("dynamic", factor=4.0), "change behind 32 tokens", options=_LONGER
    ),
    "dynamic scaling, no longer than it": Oddity(
        _rope("dynamic", factor=4.0, original_max_position_embeddings=16), EQUAL, options={"max_sequence": 31}
    ),
    "longrope with one table": Oddity(
        _rope("longrope", short_factor=[2.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=16),
        EQUAL, options={"max_sequence": 31},
    ),
    "longrope beyond the length of training": Oddity(
        _all(_rope("longrope", **_FACTORS), _config(max_position_embeddings=128)),
        "change behind 32 tokens", options=_LONGER,
    ),
    "more rows of the embedding than config.json says": Oddity(
        _config(vocab_size=96), r"should be \[96, 64\].*is \[97, 64\]"
    ),
    "stored in bfloat16, one tensor in float32": Oddity(
        _tensors(lambda t: t.update({k: v.bfloat16() for k, v in t.items() if "norm" not in k})), EQUAL
    ),
}  # fmt: skip
"""Oddity → the checkpoint that has it, and the outcome."""
