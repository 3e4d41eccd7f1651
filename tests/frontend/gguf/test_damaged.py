"""Damaged GGUF files: an error in words, never a crash, and nothing allocated beyond the file."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from partc.errors import ModelError
from partc.frontend.gguf.file import GgufFile
from partc.frontend.gguf.folder import gguf_folder
from partc.ir.encodings.blocks import decode
from tests.frontend.gguf.makers import finish

pytestmark = pytest.mark.hf
ROUNDS = 3000
"""Damaged files of a run."""


def write_small(file: Path) -> None:
    """A file with every kind of entry, and tensors with and without blocks."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["a", "b", "ab"])
    writer.add_token_types([1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_array("llama.odd", [1.5, 2.5])
    writer.add_bool("llama.flag", True)
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    blocks = gguf.quants.quantize(np.ones((4, 32), np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("blk.0.attn_q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    finish(writer)


def damage(content: bytes, rng: random.Random) -> bytes:
    """The file cut, with bytes changed, or with a length that says more than there is."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randint(1, 9)]
            case 2:
                data[at : at + 8] = rng.choice([2**63, 2**40, 0, 2**32 - 1]).to_bytes(8, "little")
            case _:
                del data[at:]
        if not data:
            return b""
    return bytes(data)


def read_all(file: Path) -> None:
    """Everything that a compile reads of a file."""
    opened = GgufFile(file)
    for name in opened.names():
        entry, values = opened.entry(name), opened.read(name)
        if entry.blocks:
            decode(values, entry.blocks)
    gguf_folder(file)


@pytest.mark.in_turns(2)
def test_damaged_files_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_small(tmp_path / "sound.gguf")
    sound, rng = (tmp_path / "sound.gguf").read_bytes(), random.Random(1)
    read_all(tmp_path / "sound.gguf")  # loads what is loaded once
    refused = 0
    tracemalloc.start()
    for number in range(ROUNDS):
        file = tmp_path / f"{number}.gguf"
        file.write_bytes(damage(sound, rng))
        try:
            read_all(file)
        except ModelError as error:
            refused += 1
            assert error.message and error.where
        file.unlink()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > ROUNDS // 2
    assert peak < 2_000_000


def test_a_file_of_the_other_byte_order_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(64))
    with pytest.raises(ModelError, match="big-endian"):
        GgufFile(file)


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    write_small(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    name = b"blk.0.attn_q.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8
    assert content[at : at + 4] == (2).to_bytes(4, "little")
    (tmp_path / "m.gguf").write_bytes(content[:at] + (16).to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(ModelError, match="stored as IQ2_XXS"):
        GgufFile(tmp_path / "m.gguf")
