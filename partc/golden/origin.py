"""What a record was made from and by; the difference of two origins says whose doing a change is.

```yaml
versions: {partc: 0.1.0, torch: 2.13.0, …}
sources: {import: 5f2c…, planner: …, targets: …, passes/find_cuts.py: …}     # of partc's code
settings: {model: {…}, devices: {…}, golden: {…}}                            # without paths
steps: {import: 77d1…, canonicalize: …, …}                                   # what each left of the graph
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

from partc.config.devices import DevicesConfig, load_devices
from partc.config.model import ModelConfig, load_model_config
from partc.config.sources import CheckpointFolder, GgufModel, HubModel, OnnxFile, RandomModel
from partc.differences.mappings import plain
from partc.format.digests import data_digest, file_digest
from partc.format.tasks import WITH_SOURCE
from partc.frontend.folder import model_folder
from partc.golden.config import TOKENS, Case
from partc.pipeline.versions import LIBRARIES, code_version, library_versions

_DIGITS = 16
_PACKAGES = {
    "import": ("partc.config", "partc.format", "partc.frontend", "partc.ir"),
    "planner": ("partc.planner",),
    "targets": ("targets", "partc.bundle"),
    "runtime": ("partc.runtime",),
}
"""Part of partc → its packages."""
_ENGINES = ("apache-tvm", "onnxruntime", "tokenizers")
"""Libraries that decide what a build computes, beside those that decide its graph."""
_PATHS = ("model", "tokenizer", "sequence_place")
"""Fields of a model's config that say where it lies."""


@dataclass(frozen=True)
class Origin:
    """What a record was made from and by."""

    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    """The import and every pass, in order → a digest of the graph that it left."""

    def to_yaml(self) -> dict[str, Any]:
        """The fields, in the order of the file."""
        return {
            "versions": self.versions,
            "sources": self.sources,
            "settings": self.settings,
            "steps": self.steps,
        }


def origin_of(case: Case, config: ModelConfig, devices: DevicesConfig, steps: Mapping[str, str]) -> Origin:
    """The origin of the record that is made of a case now."""
    versions = library_versions((*LIBRARIES, *_ENGINES))
    code = {name: code_version(*packages) for name, packages in _PACKAGES.items()}
    settings = {
        "model": {**_model_settings(config), **_source(config)},
        "devices": _device_settings(devices),
        "golden": {
            "strategy": case.strategy,
            "cut_rule": case.cut_rule,
            "after": list(case.after),
            "prompts": list(case.prompts),
            "tokens": TOKENS if case.tokens is None else case.tokens,
        },
    }
    return Origin(
        {"partc": code["import"]["partc"], **dict(sorted(versions.items()))},
        {**{name: version["sources"][:_DIGITS] for name, version in code.items()}, **_passes()},
        plain(settings),
        steps,
    )


def origin_now(case: Case, steps: Mapping[str, str]) -> Origin:
    """The same for a case that cannot be compiled: the steps are those of another record."""
    return origin_of(case, load_model_config(case.model), load_devices(case.devices), steps)


def _passes() -> dict[str, str]:
    """Digests of the files and folders of `passes/`."""
    spec = util.find_spec("passes")
    assert spec is not None
    assert spec.origin is not None
    found = {}
    for path in sorted(Path(spec.origin).parent.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            files = sorted(path.rglob("*.py"))
        elif path.suffix == ".py" and path.name != "__init__.py":
            files = [path]
        else:
            continue
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
        found[f"passes/{path.name}"] = digest.hexdigest()[:_DIGITS]
    return found


def _model_settings(config: ModelConfig) -> dict[str, Any]:
    # What follows from other fields would be told beside these.
    hidden = {*_PATHS, "keep_stored", *(() if config.task in WITH_SOURCE else ("max_source",))}
    found = {key: value for key, value in asdict(config).items() if key not in hidden}
    return {**found, "quantize": config.quantize.text if config.quantize else None}


def _source(config: ModelConfig) -> dict[str, Any]:
    """What a model is made from: its config, or the digest of its file."""
    match config.model:
        case RandomModel(config=made, seed=seed):
            return {"config": dict(made), "seed": seed}
        case OnnxFile(path=path):
            return {"file": file_digest(path)[:_DIGITS]}
        case CheckpointFolder() | GgufModel() | HubModel() as model:
            content = (model_folder(model) / "config.json").read_text(encoding="utf-8")
            return {"config": json.loads(content)}


def _device_settings(devices: DevicesConfig) -> dict[str, Any]:
    """devices.yaml as it was understood, profiles looked up; measured times as their digest."""
    fields = asdict(devices)
    fields["links"] = {f"{a} → {b}": link for (a, b), link in fields["links"].items()}
    measured = fields.pop("measured")
    if measured is not None:
        measured.pop("file", None)
        fields["measured"] = data_digest(plain(measured))[:_DIGITS]
    for device in fields["devices"].values():
        device.pop("name", None)
    found: dict[str, Any] = _without_places(fields)
    return found


def _without_places(value: Any) -> Any:
    """Settings without the places in files where they stand, which depend on the folder that one is in."""
    if isinstance(value, dict):
        kept = {
            key: each for key, each in value.items() if key != "where" and not str(key).endswith("_place")
        }
        return {key: _without_places(each) for key, each in kept.items()}
    return [_without_places(each) for each in value] if isinstance(value, list | tuple) else value
