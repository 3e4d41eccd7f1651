"""times.json: how long sub-modules really took on devices, by `partc profile`; devices.yaml names it (`measured:`).

```
{"format": "partc-times/1", "measured": "2026-11-20T10:15:00+00:00", "settings": {"max_sequence": 512, …},
 "devices": {"phone": {"target": "ort", "provider": "cpu", "threads": 0, "options": {},
    "machine": {"cpu": "…", "arch": "aarch64", "cores": 8, "memory_bytes": 4e9},
    "call_overhead_s": 3e-5, "step_overhead_s": 2e-4, "hop_overhead_s": 1e-4, "rough": false,
    "times": {DIGEST: {"seconds": 0.0012, "spread_s": 0.0001, "repeats": 15,
      "phase": "decode", "submodules": [1, 3]}}}}}
```

A DIGEST (`partc.ir.digests`) stands for what a sub-module computes and for the sizes of its phase: so the file fits
every model that has such a sub-module, and says nothing of one that was changed; `settings`, what model.yaml said
then, tells why. `rough`: other programs took cores meanwhile. `phase` and `submodules` are for people. Seconds are
marginal: without the `call_overhead_s` of a call of the engine, which a device has once per step. What a step costs a
device besides, that call included, is `step_overhead_s` where it is the source, else `hop_overhead_s`: the plan has the
one in sub-module 0, the other in every message to the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partc.config.section import Section
from partc.errors import ConfigError
from partc.format.json_text import read_json

FORMAT = "partc-times/1"
_DEVICE_KEYS = (
    "target", "provider", "threads", "options", "machine", "call_overhead_s", "step_overhead_s", "hop_overhead_s",
    "rough", "times",
)  # fmt: skip
_TIME_KEYS = ("seconds", "spread_s", "repeats", "phase", "submodules")


@dataclass(frozen=True)
class DeviceTimes:
    """The measurements of one device."""

    target: str
    provider: str
    threads: int
    seconds: Mapping[str, float]
    """Digest → seconds of one step."""
    call_overhead_s: float = 0.0
    """Seconds that a call of the engine takes besides."""
    step_overhead_s: float = 0.0
    """Seconds that a step costs the device as the source, besides sub-modules and messages."""
    hop_overhead_s: float = 0.0
    """Seconds that a step costs it elsewhere, besides sub-modules and what links take."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the target's own, as JSON has them."""
    rough: bool = False
    """Whether other programs took cores meanwhile."""

    def fits(self, target: str, provider: str, threads: int, options: Mapping[str, object]) -> bool:
        """Whether it was measured with what the device is to run with now."""
        then = (self.target, self.provider, self.threads, self.options)
        return then == (target, provider, threads, as_json(options))


@dataclass(frozen=True)
class Times:
    """The content of times.json."""

    file: str
    devices: Mapping[str, DeviceTimes] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    """Sizes and workload of model.yaml when they were measured."""


def as_json(options: Mapping[str, object]) -> dict[str, object]:
    """Options as a file of JSON gives them back: tuples are lists."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}


def load_times(path: Path, where: str) -> Times:
    """Reads times.json; `where` is the place that names it.

    Raises:
        ConfigError: no such file, or it is not what `partc profile` writes.
    """
    hint = "measure again: partc profile MODEL --target DEVICES -o profile"
    if not path.is_file():
        state = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
        raise ConfigError(state, where=where, hint=hint)
    data = read_json(path, ConfigError, hint)
    top = Section(data, str(path))
    if top.text("format") != FORMAT:
        raise top.error(f"expected {FORMAT}", "format", hint=hint)
    top.allow(("format", "measured", "settings", "devices"))
    top.text("measured")
    top.require("devices", '"devices": {}')
    devices = top.section("devices")
    found = {name: _device(devices.section(name)) for name in devices.data}
    return Times(str(path), found, top.section("settings").data)


def _device(section: Section) -> DeviceTimes:
    section.allow(_DEVICE_KEYS)
    times = section.section("times")
    section.section("machine")
    return DeviceTimes(
        target=section.text("target"),
        provider=section.text("provider"),
        threads=section.whole("threads", 0, minimum=0),
        seconds={digest: _seconds(times.section(digest)) for digest in times.data},
        call_overhead_s=section.number("call_overhead_s", 0.0),
        step_overhead_s=section.number("step_overhead_s", 0.0),
        hop_overhead_s=section.number("hop_overhead_s", 0.0),
        rough=section.data.get("rough") is True,
        options=section.section("options").data,
    )


def _seconds(section: Section) -> float:
    section.allow(_TIME_KEYS)
    return section.number("seconds", positive=True)
