"""The origin of a build: its model and options. It is kept in runs/, since a bundle names no path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.config.devices import DevicesConfig
from partc.config.model import ModelConfig, load_model_config
from partc.errors import BundleError
from partc.format.json_text import read_json
from partc.format.role import Role
from partc.ir.quantization import NONE, Quantization

_FILE = Path("runs") / "origin.json"
_AGAIN = "run `partc compile` again, which writes it"
_OF_A_DEVICE = ("target", "arch", "provider", "threads", "options")
"""The options that decide how a device computes."""


@dataclass(frozen=True)
class Build:
    """The origin of a build, besides its model."""

    role: Role
    """The role of the source."""
    device: Mapping[str, Any]
    """The source as in devices.yaml: target, arch, provider, threads, options."""
    others: tuple[str, ...] = ()
    """Devices in the ring that differ from the source in these, threads aside."""
    quantize: str | None = None
    """Its quantisation in words; None where that was not remembered."""
    disable: tuple[str, ...] = ()
    """Fusions that were turned off."""


def write_origin(
    build: Path,
    model: str,
    devices: DevicesConfig | None = None,
    quantize: Quantization | None = None,
    disable: Sequence[str] = (),
) -> None:
    """Remember what was compiled (the path of model.yaml, of a folder or of an ONNX file, or a hub id), and how."""
    path = Path(model)
    file = build / _FILE
    file.parent.mkdir(exist_ok=True)
    content: dict[str, Any] = {"model": str(path.resolve()) if path.exists() else model}
    if devices is not None:
        content |= {
            "quantize": say(quantize),
            "disable": list(disable),
            "devices": {
                name: {key: getattr(device, key) for key in _OF_A_DEVICE}
                for name, device in devices.devices.items()
            },
        }
    file.write_text(json.dumps(content) + "\n")


def say(quantize: Quantization | None) -> str:
    """`int4, head int8`; `none`."""
    return quantize.text if quantize else NONE


def read_origin(build: Path, model: str | None = None) -> ModelConfig:
    """The config of the original; `model` wins over what is remembered.

    Raises:
        BundleError: nothing is remembered, or what was is damaged.
        ConfigError: the original is not there any more.
    """
    if model is None:
        file = build / _FILE
        if not file.exists():
            raise BundleError(
                "it is not known what this build was compiled from",
                where=str(build),
                hint=f"name the original: partc verify {build} --model model.yaml",
            )
        model = str(_read(file)["model"])
    return load_model_config(model)


def read_build(build: Path) -> Build:
    """The way in which the devices of a build compute; where it was not kept, that of the source's role.

    Raises:
        BundleError: what was remembered is damaged, or the folders of the devices are not those of one build.
    """
    from partc.format.role import read_roles

    roles, file = read_roles(build), build / _FILE
    role = roles[next(iter(roles.values())).source]
    content = _read(file) if file.exists() else {}
    known = content.get("devices", {})
    source = known.get(role.source) or {
        "target": role.target,
        "provider": role.engine.provider,
        "threads": role.engine.threads,
    }
    unlike = (name for name in role.ring if name in known and _way(known[name]) != _way(source))
    disabled = tuple(content.get("disable", ()))
    return Build(role, source, tuple(unlike), content.get("quantize"), disabled)


def _read(file: Path) -> dict[str, Any]:
    """The content of the file that `write_origin` wrote."""
    content = read_json(file, BundleError, _AGAIN)
    if not isinstance(content, dict):
        raise _damaged(file, "it is no JSON object")
    found = {"quantize": None, "disable": [], "devices": {}, **content}
    for key, is_right in _KEYS.items():
        if key not in found:
            raise _damaged(file, f"`{key}` is missing")
        if not is_right(found[key]):
            raise _damaged(file, f"`{key}` cannot be {json.dumps(found[key])[:40]}")
    return found


def _damaged(file: Path, what: str) -> BundleError:
    return BundleError(
        f"the origin of the build cannot be read: {what}",
        where=str(file),
        hint=_AGAIN,
    )


def _is_devices(value: object) -> bool:
    """A name → how the device computes."""
    return isinstance(value, dict) and all(
        isinstance(device, dict) and device.keys() <= set(_OF_A_DEVICE) for device in value.values()
    )


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_KEYS: dict[str, Callable[[object], bool]] = {
    "model": lambda value: isinstance(value, str),
    "quantize": lambda value: value is None or isinstance(value, str),
    "disable": _is_names,
    "devices": _is_devices,
}
"""Key → whether a value can be its own."""


def _way(device: Mapping[str, Any]) -> dict[str, Any]:
    """The way in which a device computes; the number of threads changes no bit."""
    return {key: value for key, value in device.items() if key != "threads"}
