"""A random model of this bench as GGUF files, for llama.cpp: float32, and what llama.cpp makes of that by itself.

    python -m tests.bench.speed.gguf_file CHECKPOINT OUT.gguf [Q8_0|Q4_0|Q4_K_S|IQ4_NL]

The vocabulary means nothing, and is there since llama.cpp's server wants one. Needs the packages gguf and, for formats
that are not float32, llama-cpp-python; `llama-quantize` does the same.
"""

from __future__ import annotations

import ctypes
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.llamas import WEIGHTS
from tests.bench.speed.gguf_layouts import LAYOUTS

FORMATS = {"Q4_0": 2, "Q8_0": 7, "Q4_K_S": 14, "IQ4_NL": 25}
"""Name → `llama_ftype` of llama.h. Q4_K_S has fewer layers in more bits than Q4_K_M, so it is the faster of the two."""


def write_gguf(checkpoint: Path, out: Path) -> None:
    """All in float32."""
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    layout = LAYOUTS[config["model_type"]]
    writer: Any = import_module("gguf").GGUFWriter(str(out), layout.arch)
    layout.add_settings(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(0)
    _add_vocabulary(writer, config["vocab_size"])
    for name, values in load_file(checkpoint / WEIGHTS).items():
        writer.add_tensor(*layout.convert(name, values, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, size: int) -> None:
    """Three special tokens, one for each byte, and words that are numbers: SentencePiece's order, which is Llama's."""
    special, byte = ["<unk>", "<s>", "</s>"], [f"<0x{value:02X}>" for value in range(256)]
    words = [f"\u2581{number}" for number in range(len(special) + len(byte), size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *byte, *words])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([2, 3, 3, *[6] * len(byte), *[1] * len(words)])  # unknown, control, byte, normal
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


def quantize(source: Path, out: Path, kind: str) -> None:
    """As llama-quantize does, embeddings and head included, where llama.cpp by itself keeps the head in Q6_K.

    Raises:
        SystemExit: llama.cpp could not.
    """
    llama: Any = import_module("llama_cpp")
    settings = llama.llama_model_quantize_default_params()
    settings.ftype = FORMATS[kind]
    if llama.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(settings)) != 0:
        raise SystemExit(f"llama.cpp did not quantise {source}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        quantize(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
