"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

| `tokenizer.ggml.model` | becomes |
| --- | --- |
| `gpt2` | BPE over bytes of texts that are split first, by the published models' expressions: `tokenizer.ggml.pre` |
| `llama` | BPE over characters whose merges follow from scores, bytes for what it does not know (SentencePiece) |

Others are refused in words. Held against llama.cpp's own test vocabularies: docs/checkpoints.md says which agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partc.errors import ModelError
from partc.frontend.gguf.file import GgufFile

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{_REST}"
_QWEN2 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{_REST}"
_QWEN35 = (
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}{_TAIL}"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}?"
    rf"|\p{{N}}{{1,3}}{_TAIL}"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip


@dataclass(frozen=True)
class _Split:
    """How texts are split before BPE."""

    patterns: tuple[str, ...]
    keeps_words: bool = False
    """Whether what is a token as a whole stays one, whatever the merges say."""
    begins: bool = False
    """Whether a text begins with a token of its own where the file does not say."""
    normalizer: str | None = None


SPLITS: Mapping[str, _Split] = {
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _Split((_LLAMA3,), keeps_words=True, begins=True),
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _Split((_LLAMA3,))),
    "glm4": _Split((_LLAMA3,), keeps_words=True),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open"),
        _Split((_QWEN2,), normalizer="NFC"),
    ),
    "stablelm2": _Split((_QWEN2,)),
    "grok-2": _Split((_QWEN2,)),
    "qwen35": _Split((_QWEN35,)),
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "gigachat",
            "mellum",
            "granite-docling",
        ),
        _Split((_WORDS,)),
    ),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"),
        _Split((r"\p{N}", _WORDS)),
    ),
    "falcon": _Split((r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, "[0-9][0-9][0-9]")),
    "deepseek-coder": _Split(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _Split(_DEEPSEEK3)),
    "tekken": _Split((_TEKKEN,), keeps_words=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _Split((_GPT4O,))),
    "seed-coder": _Split(
        (
            rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+",
        )
    ),
}
"""Value of `tokenizer.ggml.pre` → the expressions."""
_UNKNOWN, _CONTROL, _BY_USER, _BYTE = 2, 3, 4, 6
"""Values of `tokenizer.ggml.token_type` that are not plain pieces."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def tokenizer_files(file: GgufFile) -> dict[str, Any]:
    """Content of tokenizer.json and tokenizer_config.json, by name; none where the file has no tokenizer.

    Raises:
        ModelError: it has one of a kind that is not read, or one that is damaged.
    """
    get, kind, tokens = (
        file.metadata.get,
        file.text("tokenizer.ggml.model"),
        file.metadata.get("tokenizer.ggml.tokens"),
    )
    if kind in (None, "none", "no_vocab") or not isinstance(tokens, list):
        return {}
    if not all(isinstance(token, str) for token in tokens):
        raise ModelError("its tokens are no texts", where=str(file.path), hint="download it again")
    if kind not in _MODELS:
        raise ModelError(
            f"its tokenizer is of the kind {kind!r}, which partc does not read",
            where=str(file.path),
            hint="put the tokenizer.json of the model and its config.json beside the file, and give that folder",
        )
    types = get("tokenizer.ggml.token_type")
    types = types if isinstance(types, list) and len(types) == len(tokens) else [1] * len(tokens)
    if len(set(tokens)) != len(tokens):
        tokens = _told_apart(tokens)
    made = _MODELS[kind](file, tokens, types)
    special = {name: _token(file, tokens, key) for name, key in _SPECIAL.items()}
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{name: text for name, text in special.items() if text is not None},
    }
    if isinstance(template := get("tokenizer.chat_template"), str):
        config["chat_template"] = template
    whole = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": _added(tokens, types),
        **made,
        "post_processor": _beginning(file, tokens, special, default=made["post_processor"] is not None),
    }  # fmt: skip
    return {"tokenizer.json": whole, "tokenizer_config.json": config}


_SPECIAL = {
    "bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}  # fmt: skip


def _token(file: GgufFile, tokens: Sequence[str], key: str) -> str | None:
    index = file.metadata.get(f"tokenizer.ggml.{key}")
    return tokens[index] if isinstance(index, int) and 0 <= index < len(tokens) else None


def _told_apart(tokens: Sequence[str]) -> list[str]:
    """Texts of which none is there twice: later ones get a name that no text becomes."""
    seen: set[str] = set()
    found = []
    for index, token in enumerate(tokens):
        found.append(f"[unused token {index}]" if token in seen else token)
        seen.add(token)
    return found


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens that are looked for in a text before anything else."""
    return [
        {
            "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": kind != _BY_USER,
        }
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _BY_USER, _UNKNOWN) and token
    ]  # fmt: skip


def _beginning(
    file: GgufFile, tokens: Sequence[str], special: Mapping[str, str | None], *, default: bool
) -> dict[str, Any] | None:
    """The post-processor, which puts a token before or behind each text."""
    get = file.metadata.get
    before = special["bos_token"] if get("tokenizer.ggml.add_bos_token", default) else None
    behind = special["eos_token"] if get("tokenizer.ggml.add_eos_token", False) else None
    pieces: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    pair: list[dict[str, Any]] = [*pieces, {"Sequence": {"id": "B", "type_id": 0}}]
    for token, at in ((before, 0), (behind, len(pair) + 1)):
        if token is not None:
            piece = {"SpecialToken": {"id": token, "type_id": 0}}
            pieces.insert(at, piece)
            pair.insert(at, piece)
    used = {token: tokens.index(token) for token in (before, behind) if token is not None}
    if not used:
        return None
    return {
        "type": "TemplateProcessing", "single": pieces, "pair": pair,
        "special_tokens": {
            token: {"id": token, "ids": [index], "tokens": [token]} for token, index in used.items()
        },
    }  # fmt: skip


def _bpe(vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]], **options: Any) -> dict[str, Any]:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": vocabulary, "merges": merges, **options,
    }  # fmt: skip


def _of_bytes(file: GgufFile, tokens: Sequence[str], types: Sequence[int]) -> dict[str, Any]:
    name = file.metadata.get("tokenizer.ggml.pre")
    split = SPLITS.get(str(name))
    if split is None:
        raise ModelError(
            f"its tokenizer splits texts as {name!r} (tokenizer.ggml.pre), which partc does not know",
            where=str(file.path),
            hint="put the tokenizer.json of the model and its config.json beside the file, and give that folder",
        )
    stored = file.metadata.get("tokenizer.ggml.merges", [])
    merges = [str(pair).split(" ", 1) for pair in stored] if isinstance(stored, list) else []
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if any(len(pair) != 2 or "".join(pair) not in vocabulary for pair in merges):
        raise ModelError(
            "its tokenizer merges what is no token", where=str(file.path), hint="download it again"
        )
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in split.patterns
    ]
    return {
        "normalizer": None if split.normalizer is None else {"type": split.normalizer},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, bytes_of]},
        "post_processor": {} if split.begins else None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocabulary, merges, ignore_merges=split.keeps_words),
    }


def _of_pieces(file: GgufFile, tokens: Sequence[str], types: Sequence[int]) -> dict[str, Any]:
    """SentencePiece's BPE: of all neighbours those are merged first whose piece has the best score."""
    scores = file.metadata.get("tokenizer.ggml.scores", [])
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ModelError("its tokenizer has no scores", where=str(file.path), hint="download it again")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pieces = {
        token for token, kind in zip(tokens, types, strict=True) if kind not in (_CONTROL, _UNKNOWN, _BYTE)
    }
    ranked: list[tuple[float, int, int, str, str]] = []
    for token in pieces:
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in pieces and right in pieces:
                rank = -scores[vocabulary[token]]
                ranked.append((rank, vocabulary[left], vocabulary[right], left, right))
    merges = [[left, right] for *_, left, right in sorted(ranked)]
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefixed = file.metadata.get("tokenizer.ggml.add_space_prefix", True)
    normalizers = [{"type": "Prepend", "prepend": _SPACE}, replaced] if prefixed else [replaced]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    ]  # fmt: skip
    if prefixed:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == _UNKNOWN), None)
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": {},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=_BYTE in types),
    }


_MODELS = {"gpt2": _of_bytes, "llama": _of_pieces}
