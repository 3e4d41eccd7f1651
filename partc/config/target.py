"""The target of a device with its options, and what stands for what devices.yaml leaves open.

| left open | taken |
| --- | --- |
| `target` | the first of `DEFAULT_TARGETS` that serves the architecture and the provider, or else the last |
| `arch: host` | the architecture of this machine, and the options by which the target describes its processor |
| options | those of the profile, for code that the device runs |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from partc.config.model import PLACES as PLACES_IN_MODEL
from partc.config.profiles import ARCHITECTURES, HOST, Profile
from partc.config.section import Section
from partc.config.times import as_json
from partc.errors import UserError
from partc.pipeline.registry import COMMON_OPTIONS, TARGETS, default_target, target_options, target_type
from partc.runtime.processor import architecture


class TargetConfig(NamedTuple):
    """What decides which code a device gets."""

    target: str
    arch: str
    provider: str
    options: Mapping[str, object]
    """Options of the target alone."""
    chosen: Mapping[str, object]
    """Keys that devices.yaml leaves open, with what was taken, as JSON."""


def read_target(section: Section, profile: Profile | None) -> TargetConfig:
    """Reads the keys of a device that concern its target.

    Raises:
        ConfigError: there is no such target, architecture, provider or option.
    """
    arch = _arch(section, profile)
    target = _target(section, arch, profile)
    known, own = _options_of(profile, target, arch), _options(section, target)
    chosen: dict[str, object] = {} if "target" in section else {"target": target}
    found: dict[str, object] = {}
    if section.data.get("arch") == HOST:
        found = {key: value for key, value in target_type(target).host_options().items() if key not in own}
        chosen |= {"arch": arch, "options": as_json(found)}
    return TargetConfig(target, arch, _provider(section, target, profile), {**known, **found, **own}, chosen)


def _options_of(profile: Profile | None, target: str, arch: str) -> dict[str, object]:
    """Options by which a profile describes the device to a target; another architecture is another device."""
    known = profile.options.get(target) if profile is not None and profile.arch == arch else None
    return target_options(target, known) if known else {}


def _arch(section: Section, profile: Profile | None) -> str:
    """That of the file, of the profile, or of this machine."""
    arch = section.choice("arch", (*ARCHITECTURES, HOST), profile.arch if profile else "x86_64")
    if arch != HOST:
        return arch
    if (found := architecture()) not in ARCHITECTURES:
        hint = f"write the one of the device: {' or '.join(ARCHITECTURES)}"
        raise section.error(f"this machine is {found}, which there is no code for", "arch", hint=hint)
    return found


def _target(section: Section, arch: str, profile: Profile | None) -> str:
    if "target" not in section:
        return default_target(arch, section.text("provider", profile.provider if profile else "cpu"))
    if section.data["target"] is None:  # the YAML of `target: null`
        raise section.error(
            "expected a target, found nothing",
            "target",
            hint='remove the key to get the default, or write ort, tvm or "null", which needs its quotes',
        )
    return section.choice("target", TARGETS)


def _options(section: Section, target: str) -> dict[str, object]:
    """Options of the target's own, as its fields take them."""
    options = section.section("options")
    for key in options.data:
        if key in COMMON_OPTIONS:
            raise options.error(
                f"`{key}` is no option of a target", key, hint=f"write `{key}:` beside `options:`"
            )
        if key in PLACES_IN_MODEL:
            raise options.error(f"`{key}` is no option of a target", key, hint=PLACES_IN_MODEL[key])
    if not options.data:  # the target itself is not even imported
        return {}
    try:
        return target_options(target, options.data)
    except UserError as error:
        raise options.error(error.message, error.where, hint=error.hint) from None


def _provider(section: Section, target: str, profile: Profile | None) -> str:
    """The provider of the device, which its target must know, or that of the profile, which the target checks."""
    default = profile.provider if profile else "cpu"
    known = target_type(target).providers if "provider" in section else None
    return section.text("provider", default) if known is None else section.choice("provider", known)
