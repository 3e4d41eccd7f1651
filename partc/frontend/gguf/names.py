"""The parameters of a model in the tensors of a GGUF file.

Names come from `gguf`, the package of llama.cpp, which knows what the tensors of each architecture are called in
checkpoints of transformers. What its converter did to a tensor is undone on rows, which keep their blocks: nothing is
unpacked for it, and no number is rounded but those of norms that were stored + 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from transformers import PreTrainedModel

from partc.frontend.gguf.architectures import Architecture, architecture_of
from partc.frontend.gguf.file import GgufFile
from partc.frontend.safetensors import StoredTensor
from partc.frontend.symbolic import SymbolicTensor, numbers_of
from partc.ir.weights import Join, Leaf, Step

_OF_POSITIONS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that the config was made of."""
_RENAMED = ((".block_sparse_moe.router.weight", ".block_sparse_moe.router.layer.weight"),)
"""Names that transformers has given up for others since the checkpoints were published, and `gguf` has not."""
_EXPERTS = re.compile(
    r"(?P<layer>.*\.(\d+)\.).*(experts\.(?P<gate_up>gate_up_proj)|experts\.down_proj"
    r"|(?P<input>input_linear)\.weight|output_linear\.weight)(?P<bias>_bias)?$"
)
"""Parameters that hold all experts of a layer."""


def tensors_of(
    file: GgufFile, stored: Mapping[str, StoredTensor]
) -> Callable[[PreTrainedModel], dict[str, SymbolicTensor]]:
    """The tensors of a file, by the names of the parameters of a network; tensors of no parameter keep their own.

    `stored` has those of all parts of a split file; `file` is the first, which has the metadata.
    """
    row = architecture_of(file)
    architecture = str(file.text("general.architecture"))
    name_of = _names(architecture, int(file.number(f"{architecture}.block_count") or 0))

    def find(network: PreTrainedModel) -> dict[str, SymbolicTensor]:
        found: dict[str, SymbolicTensor] = {}
        used: set[str] = set(_OF_POSITIONS)
        parameters = dict(network.named_parameters(remove_duplicate=False))
        for name, parameter in parameters.items():
            own = _experts(name, row, stored, used) if parameter.ndim > 1 else None
            if own is None:
                key = name_of(name)
                if key is None or key not in stored:
                    continue
                used.add(key)
                own = _plain(name, key, stored[key], row, network)
            found[name] = own
        return found | {
            key: numbers_of(Leaf(stored[key].file, key), stored[key]) for key in stored if key not in used
        }

    return find


def _names(architecture: str, layers: int) -> Callable[[str], str | None]:
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kind = next(kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture)
    known = get_tensor_name_map(kind, layers)

    @cache
    def name_of(parameter: str) -> str | None:
        for ours, hub in _RENAMED:
            parameter = parameter.replace(ours, hub)
        name = known.get_name(parameter, try_suffixes=(".weight", ".bias"))
        # A parameter that is no `weight` of a module is one in the file.
        return name if name is None or name.endswith((".weight", ".bias")) else f"{name}.weight"

    return name_of


def _plain(
    name: str, key: str, stored: StoredTensor, row: Architecture, network: PreTrainedModel
) -> SymbolicTensor:
    leaf = Leaf(stored.file, key)
    config = network.config.get_text_config()
    if row.permutes and (turned := re.search(r"\.(q|k)_proj\.(weight|bias)$", name)):
        heads = config.num_attention_heads if turned[1] == "q" else config.num_key_value_heads
        return numbers_of(_in_halves(leaf, stored.shape, heads), stored)
    found = numbers_of(leaf, stored)
    if row.shifts_norms and name.endswith("norm.weight"):
        return SymbolicTensor(Step("add", (-1.0,), found.expr), found.shape, found.dtype)
    if row.turned and re.search(row.turned, name):
        return found.T
    return found


def _in_halves(leaf: Leaf, shape: tuple[int, ...], heads: int) -> Step:
    """Rows of each head in halves, as transformers rotates them; llama.cpp has their pairs side by side."""
    rows, *width = shape
    pairs = Step("reshape", (heads, rows // heads // 2, 2, *width), leaf)
    axes = (0, 2, 1, 3) if width else (0, 2, 1)
    return Step("reshape", shape, Step("transpose", axes, pairs))


def _experts(
    name: str, row: Architecture, stored: Mapping[str, StoredTensor], used: set[str]
) -> SymbolicTensor | None:
    """A parameter of all experts of a layer, of the file's tensors for gates, what goes up and what comes down."""
    match = _EXPERTS.match(name)
    if match is None:
        return None
    end = "bias" if match["bias"] else "weight"
    parts = ("gate", "up") if match["gate_up"] or match["input"] else ("down",)
    keys = [f"blk.{match[2]}.ffn_{part}_exps.{end}" for part in parts]
    if not all(key in stored for key in keys):
        return None
    used.update(keys)
    interleaved = row.model_type == "gpt_oss"
    experts = [
        _expert([(key, stored[key]) for key in keys], index, interleaved)
        for index in range(_count(stored, keys))
    ]
    if interleaved and end == "weight":
        experts = [expert.T for expert in experts]
    source = Join("stack", 0, tuple(expert.expr for expert in experts))
    return SymbolicTensor(source, (len(experts), *experts[0].shape), experts[0].dtype)


def _count(stored: Mapping[str, StoredTensor], keys: list[str]) -> int:
    """The number of experts, of which every layer has one at least."""
    return max(1, min(stored[key].shape[0] for key in keys))


def _expert(parts: list[tuple[str, StoredTensor]], index: int, interleaved: bool) -> SymbolicTensor:
    """What one expert has in a parameter: its gate and what goes up, one behind the other or row by row in turns."""
    own = [_alone(Leaf(tensor.file, key), tensor, index) for key, tensor in parts]
    if len(own) == 1:
        return own[0]
    gate, up = own
    rows, *width = gate.shape
    if not interleaved:
        return SymbolicTensor(Join("concat", 0, (gate.expr, up.expr)), (2 * rows, *width), gate.dtype)
    turns = Join("stack", 1, (gate.expr, up.expr))
    return SymbolicTensor(Step("reshape", (2 * rows, *width), turns), (2 * rows, *width), gate.dtype)


def _alone(leaf: Leaf, stored: StoredTensor, index: int) -> SymbolicTensor:
    """The matrix, or the biases, of one expert."""
    shape = stored.shape[1:]
    rows = Step("reshape", shape, Step("slice", (0, index, index + 1), leaf))
    return numbers_of(rows, replace(stored, shape=shape))
