"""GGUF files that llama.cpp's converter wrote: the same config, the same parameters, the same logits as before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from partc.bundle.tensors import open_tensors
from partc.config.model import load_model_config
from partc.errors import UserError
from partc.format.gguf import BLOCKS
from partc.frontend.cache import load_cached
from partc.frontend.folder import model_folder
from partc.frontend.load import load_network, open_weights
from partc.frontend.source import open_source
from partc.ir.graph import ModelInfo
from partc.ir.quantization import AS_STORED
from partc.ir.weights import materialize
from tests.frontend.gguf.makers import (
    CONVERTED,
    VOCABULARY,
    blocks_of,
    convert,
    copy_facts,
    finish,
    is_matrix,
    rewrite,
    save_model,
)

pytestmark = pytest.mark.hf
_OFTEN = ("llama", "llama 3", "mixtral", "gpt2", "gpt_oss")
"""Families of every run."""
FAMILIES = [
    family if family in _OFTEN else pytest.param(family, marks=pytest.mark.slow) for family in CONVERTED
]
Made = Callable[[str], tuple[Any, Path]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _converted("llama", tmp_path_factory.mktemp("llama"))[1]


def _converted(family: str, folder: Path) -> tuple[Any, Path]:
    network = save_model(CONVERTED[family], folder / "model")
    convert(folder / "model", folder / "model.gguf")
    return network, folder / "model.gguf"


def _network(file: Path) -> Any:
    config = load_model_config(file)
    source = open_source(config.model)  # type: ignore[arg-type]
    assert source.folder is not None
    return load_network(source, source.folder, config, torch.float32)


def _parameters(file: Path) -> dict[str, np.ndarray]:
    config = load_model_config(file)
    source, weights = open_weights(config)
    assert source.folder is not None
    with torch.device("meta"):
        network = _classes(source.config)
    read = open_tensors(ModelInfo("m", "text-generation", folder=str(source.folder), dtype="f32"))
    return {name: materialize(expr, read) for name, expr in weights.fit(network).items()}


def _classes(config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_the_one_that_was_converted(family: str, tmp_path: Path) -> None:
    expected, file = _converted(family, tmp_path)
    found = _network(file)
    ids = torch.randint(0, VOCABULARY, (1, 90), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.equal(found(ids).logits, expected(ids).logits)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma", "gemma2", "gemma3_text"])
def test_norms_that_are_stored_with_one_added(family: str, tmp_path: Path, llama: Path) -> None:
    """The converter of the package index cannot read gemma with this `gguf`: its file is written by hand."""
    sizes = {**CONVERTED["llama"], "model_type": family, "head_dim": 64, "query_pre_attn_scalar": 64}
    expected = save_model(sizes | ({} if family == "gemma" else {"sliding_window": 64}), tmp_path / "model")
    file = tmp_path / "model.gguf"
    _write_gemma(expected, family.removesuffix("_text"), llama, file)
    found = _network(file)
    ids = torch.randint(0, VOCABULARY, (1, 90), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        np.testing.assert_allclose(found(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-4)


def _write_gemma(network: Any, architecture: str, like: Path, file: Path) -> None:
    reader = gguf.GGUFReader(like)
    writer = gguf.GGUFWriter(file, architecture)
    copy_facts(reader, writer, beginning="tokenizer.")
    config = network.config
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(64)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture != "gemma":
        writer.add_sliding_window(64)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    if architecture == "gemma3":
        writer.add_rope_freq_base(1e6)
    model = next(model for model, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(model, 2)
    for key, value in network.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight",))
        if name is not None and key != "lm_head.weight":
            writer.add_tensor(name, (value + 1 if key.endswith("norm.weight") else value).numpy())
    finish(writer)


@pytest.mark.parametrize("kind", [form.name for form in BLOCKS])
def test_blocks_are_what_the_package_of_llama_cpp_makes_of_them(
    kind: str, llama: Path, tmp_path: Path
) -> None:
    form = gguf.GGMLQuantizationType[kind]

    def quantized(name: str, data: np.ndarray) -> tuple[np.ndarray, gguf.GGMLQuantizationType] | None:
        return (blocks_of(data, kind), form) if is_matrix(name, data) else None

    def floats(name: str, data: np.ndarray) -> tuple[np.ndarray, gguf.GGMLQuantizationType] | None:
        if not is_matrix(name, data):
            return None
        return gguf.quants.dequantize(blocks_of(data, kind), form), gguf.GGMLQuantizationType.F32

    rewrite(llama, tmp_path / "blocks.gguf", quantized)
    rewrite(llama, tmp_path / "floats.gguf", floats)
    found, expected = _parameters(tmp_path / "blocks.gguf"), _parameters(tmp_path / "floats.gguf")
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert np.array_equal(values, expected[name]), name
        assert np.isfinite(values).all(), name


@pytest.mark.in_turns(2)
def test_integers_that_a_format_holds_are_kept(llama: Path, tmp_path: Path) -> None:
    for kind, precision in (("Q4_0", AS_STORED), ("Q8_0", AS_STORED), ("F16", None)):
        form, file = gguf.GGMLQuantizationType[kind], tmp_path / f"{kind}.gguf"
        rewrite(
            llama,
            file,
            lambda name, data, kind=kind, form=form: (  # type: ignore[misc]
                (blocks_of(data, kind), form) if is_matrix(name, data) else None
            ),
        )
        assert load_cached(load_model_config(file)).info.quantize == precision


def test_parts_of_a_split_file_are_one_model(llama: Path, tmp_path: Path) -> None:
    reader = gguf.GGUFReader(llama)
    names = [tensor.name for tensor in reader.tensors]
    for number, own in enumerate((names[:9], names[9:]), 1):
        _write_part(reader, own, tmp_path / f"m-{number:05}-of-00002.gguf", number - 1)
    whole, found = _parameters(llama), _parameters(tmp_path / "m-00001-of-00002.gguf")
    assert whole.keys() == found.keys()
    assert all(np.array_equal(whole[name], found[name]) for name in whole)
    with pytest.raises(UserError, match="not the first part"):
        _parameters(tmp_path / "m-00002-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(UserError, match="is missing"):
        _parameters(tmp_path / "m-00001-of-00002.gguf")


def _write_part(reader: gguf.GGUFReader, names: list[str], file: Path, number: int) -> None:
    writer = gguf.GGUFWriter(file, "llama")
    if number == 0:
        copy_facts(reader, writer)
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", 2)
    for tensor in reader.tensors:
        if tensor.name in names:
            writer.add_tensor(tensor.name, tensor.data)
    finish(writer)


def test_the_tokenizer_of_the_file_is_the_one_of_the_model(llama: Path) -> None:
    folder = model_folder(load_model_config(llama).model)  # type: ignore[arg-type]
    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = Tokenizer.from_file(str(llama.parent / "model" / "tokenizer.json"))
    for text in (
        "The ring heals.",
        " two  spaces\n\n\tand tabs",
        "žluťoučký 3333 kůň ½",
        "<|endoftext|>a",
        "",
    ):
        assert found.encode(text).ids == expected.encode(text).ids
        assert found.decode(found.encode(text).ids) == expected.decode(expected.encode(text).ids)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"general.architecture": "rwkv6"}, "its architecture is 'rwkv6'"),
        ({"tokenizer.ggml.pre": "nobody's"}, 'splits texts as "nobody\'s"'),
        ({"tokenizer.ggml.model": "rwkv"}, "of the kind 'rwkv'"),
    ],
)
def test_what_is_not_read_is_named(facts: dict[str, str], words: str, llama: Path, tmp_path: Path) -> None:
    content = llama.read_bytes()
    for key, value in facts.items():
        old = {
            "general.architecture": b"llama",
            "tokenizer.ggml.pre": b"gpt-2",
            "tokenizer.ggml.model": b"gpt2",
        }[key]
        at = content.index(key.encode()) + len(key) + 4
        new = value.encode()
        head = len(old).to_bytes(8, "little") + old
        assert content[at : at + len(head)] == head
        content = content[:at] + len(new).to_bytes(8, "little") + new + content[at + len(head) :]
    (tmp_path / "m.gguf").write_bytes(_realigned(content, llama))
    with pytest.raises(UserError) as caught:
        _parameters(tmp_path / "m.gguf")
    assert words in caught.value.message


def _realigned(content: bytes, original: Path) -> bytes:
    """The data where it has to begin once the header has another length."""
    reader = gguf.GGUFReader(original)
    start = reader.data_offset
    moved = start + len(content) - original.stat().st_size
    return content[:moved].ljust(-(-moved // 32) * 32, b"\0") + content[moved:]


def test_a_tensor_that_belongs_nowhere_is_named(llama: Path, tmp_path: Path) -> None:
    reader = gguf.GGUFReader(llama)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    copy_facts(reader, writer)
    for tensor in reader.tensors:
        if tensor.name != "blk.1.ffn_up.weight":
            writer.add_tensor(tensor.name, tensor.data)
    writer.add_tensor("blk.1.ffn_sideways.weight", np.zeros((4, 4), np.float32))
    finish(writer)
    with pytest.raises(UserError, match=r"no tensor for model\.layers\.1\.mlp\.up_proj") as caught:
        _parameters(tmp_path / "m.gguf")
    assert caught.value.where == str(tmp_path / "m.gguf"), "the file that the user has"


def test_a_part_of_a_head_that_is_rotated_is_no_small_matter(llama: Path, tmp_path: Path) -> None:
    rewrite(llama, tmp_path / "m.gguf", lambda name, data: None, {"llama.rope.dimension_count": 6})
    with pytest.raises(UserError, match="it rotates 6 numbers of heads of"):
        _parameters(tmp_path / "m.gguf")
