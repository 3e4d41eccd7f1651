"""Device profiles: figures of known devices, as data, each with where it comes from.

They lie in `targets/profiles/*.yaml`, beside this package; they are read as files, so that `targets` need not
be imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import partc
from partc.config.section import Section
from partc.config.units import parse_bandwidth, parse_bytes, parse_flops
from partc.config.yamlfile import load_yaml
from partc.errors import ConfigError
from partc.kept import user_cache

FOLDER = Path(partc.__file__).resolve().parent.parent / "targets" / "profiles"
PLATFORM_OF = {"aarch64": "aarch64-linux-gnu", "x86_64": "x86_64-linux"}
"""Architecture -> the platform of a device that names none."""
ARCHITECTURES = tuple(PLATFORM_OF)
HOST = "host"
"""The profile of the machine that plans, measured by `partc profile --host`."""
_FIGURES = ("flops", "memory_bandwidth", "memory")


@dataclass(frozen=True)
class Profile:
    """The figures of a kind of device."""

    name: str
    title: str
    """Its name in prose."""
    arch: str
    provider: str
    flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    options: Mapping[str, Mapping[str, object]]
    """Target → its options for code that this device runs: platform, features, architecture of the GPU."""
    sources: dict[str, str]
    """Figure -> where it comes from."""


def profile_names() -> list[str]:
    """The profiles that there are, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def host_file() -> Path:
    """The file of this machine's profile."""
    return user_cache() / "host.yaml"


def find_profile(name: str, *, where: str | None = None) -> Profile:
    """The profile of that name.

    Raises:
        ConfigError: there is none; the message lists those that there are.
    """
    if name == HOST:
        if not host_file().is_file():
            raise ConfigError("this machine was not measured yet", where=where, hint="partc profile --host")
        return _read(HOST, load_yaml(host_file()))
    known = profile_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean `{near[0]}`? " if near else ""
        raise ConfigError(
            f"unknown profile `{name}`", where=where, hint=f"{advice}known profiles: {', '.join(known)}"
        )
    return _load(name)


@lru_cache
def _load(name: str) -> Profile:
    return _read(name, load_yaml(FOLDER / f"{name}.yaml"))


def _read(name: str, top: Section) -> Profile:
    top.allow(("title", "arch", "provider", "options", *_FIGURES))
    options = top.section("options")
    figures = {figure: _figure(top, figure) for figure in _FIGURES}
    return Profile(
        name=name,
        title=top.text("title"),
        arch=top.choice("arch", ARCHITECTURES),
        provider=top.text("provider", "cpu"),
        flops_per_s=parse_flops(figures["flops"].data["value"], where=figures["flops"].place("value")),
        memory_bandwidth_bytes_per_s=parse_bandwidth(
            figures["memory_bandwidth"].data["value"], where=figures["memory_bandwidth"].place("value")
        ),
        memory_bytes=parse_bytes(figures["memory"].data["value"], where=figures["memory"].place("value")),
        options={target: options.section(target).data for target in options.data},
        sources={figure: section.text("source") for figure, section in figures.items()},
    )


def _figure(top: Section, name: str) -> Section:
    """`{value: quantity with unit, source: text}`."""
    top.require(name, f"{name}: {{value: ..., source: ...}}")
    section = top.section(name)
    section.allow(("value", "source"))
    section.require("value", "value: ...")
    return section
