"""A model's folder, and which of its files hold which tensors; needs neither torch nor transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from partc.config.checkpoint_folder import check_checkpoint
from partc.config.sources import CheckpointFolder, GgufModel, HubModel, ModelSource, OnnxFile, RandomModel
from partc.errors import ModelError
from partc.format.first_bytes import check_foreign_json
from partc.format.json_text import read_json
from partc.format.names import PREPROCESSOR_FILES
from partc.frontend.containers import open_container
from partc.frontend.equal_tensors import equal_values
from partc.frontend.gguf.folder import gguf_folder, parts_of
from partc.frontend.safetensors import StoredTensor
from partc.ir.weights import Leaf

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""The files that are fetched of a hub model: no code, no pickles."""
TOKENIZER_HUB_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "*.jinja")
"""The files that are fetched of a hub model whose tokenizer alone is wanted."""
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors$")
_AGAIN = "download the checkpoint again"


def model_folder(model: CheckpointFolder | GgufModel | HubModel) -> Path:
    """The folder of a model; downloads a hub model's files, and makes one for a GGUF file.

    Raises:
        ModelError: the hub cannot be reached, or has no such model; the file is none that is read.
    """
    match model:
        case CheckpointFolder(folder):
            return folder
        case GgufModel(path):
            return gguf_folder(path)
        case HubModel(repo):
            return _download(repo, HUB_FILES)


def tokenizer_folder(tokenizer: CheckpointFolder | HubModel) -> Path:
    """The folder of a tokenizer; downloads its files where it is on the hub.

    Raises:
        ModelError: the hub cannot be reached, or has no such tokenizer.
    """
    if isinstance(tokenizer, CheckpointFolder):
        return tokenizer.folder
    folder = _download(tokenizer.repo, TOKENIZER_HUB_FILES)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{tokenizer.repo} has no tokenizer.json",
            where="tokenizer",
            hint="save one with AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER), and give that folder",
        )
    return folder


def _download(repo: str, files: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo, allow_patterns=list(files)))
    except Exception as error:
        raise ModelError(
            f"cannot get {repo} from the hub: {str(error).splitlines()[0]}",
            where=repo,
            hint="check the name and the network, or give a local folder",
        ) from error


def check_folder(folder: Path) -> None:
    """Refuse a folder that is no checkpoint, or whose configs are no JSON that transformers reads.

    Raises:
        ModelError: says what the folder or the file is.
    """
    check_checkpoint(folder, str(folder), ModelError)
    for name in ("config.json", "generation_config.json", *PREPROCESSOR_FILES):
        if (folder / name).is_file():
            check_foreign_json(folder / name, ModelError)


def notes_about(model: ModelSource) -> list[str]:
    """Remarks for the user about a model that was imported: code of its own that was not used."""
    if isinstance(model, OnnxFile | GgufModel):
        return []
    if isinstance(model, RandomModel):
        found = ["the config"] if model.config.get("auto_map") else []
    else:
        folder = model_folder(model)
        names = ("config.json", "tokenizer_config.json", *PREPROCESSOR_FILES)
        found = [name for name in names if (folder / name).is_file() and _has_code(folder / name)]
    if not found:
        return []
    return [
        f"{' and '.join(found)} of {model.name} name{'s' * (len(found) == 1)} code of its own (auto_map), which was "
        "not touched: transformers' own classes are used"
    ]


def _has_code(path: Path) -> bool:
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(data, dict) and bool(data.get("auto_map"))


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of the files of a folder, by key; reads headers only.

    The file that transformers takes: model.safetensors, else those of the index, else all that there are; a GGUF file
    where there is no other.

    Raises:
        ModelError: there is no file of weights, one of them is damaged or missing, a tensor that the index lists is
            not where it says, or two files have different tensors of one name.
    """
    names, places = _files(folder)
    files = [open_container(folder / name) for name in names]
    found: dict[str, StoredTensor] = {}
    for file in files:
        for key in file.names():
            entry = file.entry(key)
            if key in found and not _same(folder, key, found[key], entry):
                raise ModelError(
                    f"the tensor {key} is in {found[key].file} and, with other values, in {entry.file}",
                    where=str(folder),
                    hint=f"{_AGAIN}: its files do not belong together",
                )
            found.setdefault(key, entry)
    for key, name in places.items():
        if key not in found:
            raise ModelError(
                f"the index lists {key} in {name}, which does not have it",
                where=str(folder / _INDEX),
                hint=f"{_AGAIN}: index and files do not belong together",
            )
    return found


def is_gguf(folder: Path) -> bool:
    """Whether the weights of a folder are in a GGUF file."""
    return not any(folder.glob("*.safetensors")) and any(folder.glob("*.gguf"))


def _same(folder: Path, key: str, first: StoredTensor, second: StoredTensor) -> bool:
    """Whether two files have the same tensor."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return equal_values(
        Leaf(first.file, key),
        Leaf(second.file, key),
        first.dtype,
        lambda leaf: open_container(folder / leaf.file).read(leaf.key),
    )


def _files(folder: Path) -> tuple[list[str], Mapping[str, str]]:
    """The files of the weights, and which tensor is in which of them where an index says so."""
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if _WHOLE in found:
        return [_WHOLE], {}
    if (folder / _INDEX).exists():
        places = _listed(folder / _INDEX)
        return _existing(folder, sorted(set(places.values()))), places
    if found:
        _check_shards(folder, found)
        return found, {}
    if blocks := sorted(path.name for path in folder.glob("*.gguf")):
        return _only_model(folder, blocks), {}
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelError(
            f"the checkpoint is a pickle ({pickles[0]}), which can run code when it is loaded; "
            "partc reads safetensors only",
            where=str(folder),
            hint="convert it: load it with transformers where you trust it, then save_pretrained(folder)",
        )
    raise ModelError(
        "no *.safetensors file, and no *.gguf file",
        where=str(folder),
        hint="give the folder of a checkpoint in safetensors format",
    )


def _only_model(folder: Path, names: list[str]) -> list[str]:
    """The parts of the one GGUF model of a folder."""
    parts = [part.name for part in parts_of(folder / names[0])]
    if others := sorted(set(names) - set(parts)):
        raise ModelError(
            f"there are several GGUF files: {', '.join([names[0], *others][:4])}",
            where=str(folder),
            hint=f"write `model: {{gguf: {others[0]}}}` in model.yaml, or give the file itself",
        )
    return parts


def _existing(folder: Path, names: list[str]) -> list[str]:
    """The files that an index lists, all of which are in the folder."""
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{name!r} is not a file of the same folder", where=str(folder / _INDEX))
        if not (folder / name).exists():
            raise ModelError(f"{name} is listed but missing", where=str(folder / _INDEX), hint=_AGAIN)
    return names


def _check_shards(folder: Path, names: list[str]) -> None:
    """Refuse files that say themselves how many there are when one is not there."""
    for found in filter(None, map(_SHARD.match, names)):
        stem, count = found[1], int(found[3])
        for number in range(1, count + 1):
            name = f"{stem}-{number:05}-of-{count:05}.safetensors"
            if name not in names:
                raise ModelError(f"{name} is missing", where=str(folder), hint=_AGAIN)


def _listed(index: Path) -> dict[str, str]:
    """Tensor → file, as an index lists them."""
    hint = "download it again"
    data = read_json(index, ModelError, hint)
    places = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError("not an index of safetensors files", where=str(index), hint=hint)
    return places
