"""Imported models are kept, since tracing a large one takes half a minute: `$XDG_CACHE_HOME/partc/imports/<key>.partc`.

An entry (`partc.kept`) is the text of the IR, and a comment with the origins of its values. Its key is a hash of all
that the import depends on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile, RandomModel
from partc.errors import ModelError, UserError
from partc.format.digests import data_digest
from partc.format.files import stamp
from partc.format.names import PREPROCESSOR_FILES
from partc.frontend import load_module
from partc.frontend.folder import model_folder, read_index
from partc.frontend.precision import precision_of
from partc.ir.graph import Module
from partc.ir.text import parse_module, print_module
from partc.kept import Kept, user_cache
from partc.pipeline.contract import Progress, no_progress
from partc.pipeline.versions import code_version

LIMIT_BYTES = 256_000_000
"""Bytes of all entries; those not used for the longest time go first. A Llama-2-7B shape takes 0.4 MB."""
_ORIGINS = "// origins "
_CODE = ("partc.config", "partc.format", "partc.frontend", "partc.ir")
"""Packages that decide what the import of a model is."""


def load_cached(config: ModelConfig, *, progress: Progress = no_progress) -> Module:
    """The model of `config` as IR, as `load_module` makes it: from the cache where it is there, else it is kept there.

    Raises:
        ModelError: see `load_module`; a checkpoint that lost a file is refused, whether its import was kept or not.
    """
    if isinstance(config.model, OnnxFile):  # is read faster than its key would be made
        return load_module(config, progress=progress)
    # A pass quantises, so every precision has the same import.
    plain = replace(config, quantize=None, keep_stored=True)
    try:
        name = f"{_key(plain)}.partc"
    except ModelError:  # the import tells what is wrong in its own order: the config before the weights
        return load_module(config, progress=progress)
    kept = Kept(cache_folder())
    module = _read(kept, name)
    if module is None:
        text = _print(load_module(plain, progress=progress))
        kept.write(name, text.encode())
        kept.drop_oldest(LIMIT_BYTES)
        module = _parse(text)  # read back as a kept one is: it cannot differ from a fresh one
    module.info = replace(module.info, quantize=precision_of(config, module.graph))
    return module


def cache_folder() -> Path:
    """The folder in which imports are kept."""
    return user_cache() / "imports"


def _key(config: ModelConfig) -> str:
    """Hash of the code, of model.yaml, of configs of model and preprocessor, of tensors' types and shapes, of files."""
    assert not isinstance(config.model, OnnxFile)
    data: dict[str, object] = {
        "code": code_version(*_CODE),
        "model": repr(replace(config, sequence_place="")),
    }
    if not isinstance(config.model, RandomModel):
        folder = model_folder(config.model)
        data["folder"] = str(folder.resolve())
        configs = ("config.json", "generation_config.json", *PREPROCESSOR_FILES)
        data["configs"] = [_digest(folder / name) for name in configs]
        tensors = read_index(folder)
        data["tensors"] = {key: repr(tensor) for key, tensor in tensors.items()}
        # Parameters are tied where their tensors are equal, so that values decide, too.
        data["files"] = [
            stamp(folder / name) for name in sorted({tensor.file for tensor in tensors.values()})
        ]
        data["adapters"] = [
            stamp(path) for adapter in config.adapters for path in sorted(adapter.folder.iterdir())
        ]
    return data_digest(data)


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _read(kept: Kept, name: str) -> Module | None:
    """The model of an entry; None where there is none that this partc can read."""
    content = kept.read(name)
    try:
        return None if content is None else _parse(content.decode())
    except (ValueError, UserError):
        return None


def _print(module: Module) -> str:
    origins = {value.name: value.origin for value in module.graph.values() if value.origin is not None}
    return f"{print_module(module)}{_ORIGINS}{json.dumps(origins)}\n"


def _parse(text: str) -> Module:
    module = parse_module(text)
    origins = json.loads(text.rpartition(_ORIGINS)[2])
    for value in module.graph.values():
        value.origin = origins.get(value.name)
    return module
