"""A model's folder, and which of its files hold which tensors; needs neither torch nor transformers."""

from __future__ import annotations

from pathlib import Path

from partc.config.model import CheckpointFolder, HubModel
from partc.errors import ModelError
from partc.format.json_text import read_json
from partc.frontend.safetensors import SafetensorsFile, StoredTensor

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
"""The files that are fetched of a hub model: no code, no pickles."""
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def model_folder(model: CheckpointFolder | HubModel) -> Path:
    """The folder of a model; downloads a hub model's files.

    Raises:
        ModelError: the hub cannot be reached, or has no such model.
    """
    return model.folder if isinstance(model, CheckpointFolder) else _download(model.repo)


def _download(repo: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo, allow_patterns=list(HUB_FILES)))
    except Exception as error:
        raise ModelError(
            f"cannot get {repo} from the hub: {str(error).splitlines()[0]}",
            where=repo,
            hint="check the name and the network, or give a local folder",
        ) from error


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of the safetensors files of a folder, by key; reads headers only.

    Raises:
        ModelError: there is no safetensors file, or one of them is damaged or missing.
    """
    files = [SafetensorsFile(folder / name) for name in _files(folder)]
    return {key: file.entry(key) for file in files for key in file.names()}


def _files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = _listed(index)
        for name in names:
            if Path(name).name != name:
                raise ModelError(f"{name!r} is not a file of the same folder", where=str(index))
            if not (folder / name).exists():
                raise ModelError(
                    f"{name} is listed but missing", where=str(index), hint="download the checkpoint again"
                )
        return names
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if found:
        return ["model.safetensors"] if "model.safetensors" in found else found
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelError(
            f"the checkpoint is a pickle ({pickles[0]}), which can run code when it is loaded; "
            "partc reads safetensors only",
            where=str(folder),
            hint="convert it: load it with transformers where you trust it, then save_pretrained(folder)",
        )
    raise ModelError(
        "no *.safetensors file",
        where=str(folder),
        hint="give the folder of a checkpoint in safetensors format",
    )


def _listed(index: Path) -> list[str]:
    """The names of the files that an index lists."""
    hint = "download it again"
    data = read_json(index, ModelError, hint)
    places = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError("not an index of safetensors files", where=str(index), hint=hint)
    return sorted(set(places.values()))
