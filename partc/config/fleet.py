"""fleet.yaml: rings of one model, where their devices are, and the door in front of them.

```yaml
rings:
  kitchen: {build: builds/kitchen}          # what `partc compile` wrote; devices.yaml gives addresses
  office:
    build: builds/office
    folder: /var/lib/partc                  # where devices have their folders; else BUILD/devices
    devices:
      board: {resource: pi-4, address: 192.0.2.9:5555}
      phone: {keeper: false}                # it runs no Ray: `partc deploy --to adb` starts its runner
door: {host: localhost, port: 8000}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partc.config.section import Section, describe
from partc.config.yamlfile import load_yaml

_TOP_KEYS = ("rings", "door")
_RING_KEYS = ("build", "folder", "devices", "insecure")
_DEVICE_KEYS = ("resource", "address", "keeper")
_DOOR_PATHS = ("api_key_file", "tls_cert", "tls_key", "chat_template")
_DOOR_KEYS = (
    *("host", "port", "name", "queue", "timeout", "temperature"),
    *_DOOR_PATHS,
    *("cors_origins", "ignore_unknown_fields", "balance", "drafts"),
)


@dataclass(frozen=True)
class DevicePlace:
    """Where a device of a ring is."""

    resource: str
    """The resource of Ray that its node has."""
    address: str | None = None
    """HOST:PORT at which the others reach it; None: that of the build."""
    has_keeper: bool = True
    """Whether Ray keeps its runner; else somebody else starts it."""


@dataclass(frozen=True)
class RingPlace:
    """One ring."""

    name: str
    build: Path
    folder: Path
    """Where each device has its own folder."""
    devices: Mapping[str, DevicePlace]
    """Those that the file says something of."""
    insecure: bool
    """Neither keys nor encryption; loopback addresses only."""
    where: str = ""
    """Its place in the file, for messages."""

    def place(self, device: str) -> DevicePlace:
        """Where a device is."""
        return self.devices.get(device, DevicePlace(f"device_{device}"))


@dataclass(frozen=True)
class DoorPlace:
    """The endpoint in front of all rings. Paths are those of the node that it runs on, Ray's head."""

    host: str = "localhost"
    port: int = 8000
    name: str | None = None
    """Name of the model; None: the build's."""
    api_key_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    chat_template: Path | None = None
    temperature: float = 1.0
    """That of requests that give none."""
    queue: int = 32
    """Answers that may wait."""
    timeout_s: float = 600.0
    """Longest time of a request, seconds."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages elsewhere that may use the API."""
    ignore_unknown_fields: bool = False
    balance: bool = True
    drafts: bool = True
    """Whether tokens may be guessed."""


@dataclass(frozen=True)
class FleetFile:
    """The content of fleet.yaml."""

    rings: Mapping[str, RingPlace]
    door: DoorPlace = field(default_factory=DoorPlace)


def load_fleet(path: Path) -> FleetFile:
    """Reads fleet.yaml; paths in it are relative to its folder.

    Raises:
        ConfigError: no such file, or a key or value is wrong.
    """
    return read_fleet(load_yaml(path), path.resolve().parent)


def read_fleet(top: Section, folder: Path) -> FleetFile:
    """Checks the content of a fleet.yaml that lies in `folder`."""
    top.allow(_TOP_KEYS)
    top.require("rings", "rings: {kitchen: {build: build}}")
    rings = top.section("rings")
    if not rings.data:
        raise top.error("there is no ring", "rings", hint="add `kitchen: {build: build}`")
    found = {name: _ring(rings.section(name), name, folder) for name in rings.data}
    return FleetFile(found, _door(top.section("door"), folder))


def _ring(section: Section, name: str, folder: Path) -> RingPlace:
    section.allow(_RING_KEYS)
    section.require("build", "build: build")
    build = folder / section.text("build")
    devices = section.section("devices")
    return RingPlace(
        name=name,
        build=build,
        folder=folder / section.text("folder") if "folder" in section else build / "devices",
        devices={device: _device(devices.section(device), device) for device in devices.data},
        insecure=_flag(section, "insecure", default=False),
        where=section.place(),
    )


def _device(section: Section, name: str) -> DevicePlace:
    section.allow(_DEVICE_KEYS)
    address = section.text("address") if "address" in section else None
    if address is not None and not address.rpartition(":")[2].isdecimal():
        raise section.error(
            f"{address!r} has no port", "address", hint="write HOST:PORT, as in 192.0.2.9:5555"
        )
    return DevicePlace(
        section.text("resource", f"device_{name}"), address, _flag(section, "keeper", default=True)
    )


def _door(section: Section, folder: Path) -> DoorPlace:
    section.allow(_DOOR_KEYS)
    paths = {key: folder / section.text(key) if key in section else None for key in _DOOR_PATHS}
    if (paths["tls_cert"] is None) != (paths["tls_key"] is None):
        raise section.error("`tls_cert` goes with `tls_key`", hint="give both, or neither")
    default = DoorPlace()
    host = section.text("host", default.host)
    if host not in ("127.0.0.1", "localhost", "::1") and paths["api_key_file"] is None:
        raise section.error(f"{host} lets others in", "host", hint="give `api_key_file` as well")
    port = section.whole("port", default.port, minimum=0)
    if port > 65535:
        raise section.error(f"{port} is no port", "port", hint="at most 65535; 0 takes a free one")
    return DoorPlace(
        host=host,
        port=port,
        name=section.text("name") if "name" in section else None,
        queue=section.whole("queue", default.queue, minimum=0),
        timeout_s=section.number("timeout", default.timeout_s, positive=True),
        temperature=_temperature(section, default.temperature),
        cors_origins=_origins(section),
        ignore_unknown_fields=_flag(section, "ignore_unknown_fields", default=False),
        balance=_flag(section, "balance", default=True),
        drafts=_flag(section, "drafts", default=True),
        **paths,
    )


def _temperature(section: Section, default: float) -> float:
    found = section.number("temperature", default)
    if not 0 <= found <= 2:
        raise section.error(f"{found:g} is no temperature", "temperature", hint="from 0 to 2")
    return found


def _origins(section: Section) -> tuple[str, ...]:
    found = section.data.get("cors_origins", [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise section.error(
            f"expected a list of origins, found {describe(found)}",
            "cors_origins",
            hint="write `cors_origins: [https://chat.example]`",
        )
    return tuple(found)


def _flag(section: Section, key: str, *, default: bool) -> bool:
    value = section.data.get(key, default)
    if not isinstance(value, bool):
        raise section.error(
            f"expected true or false, found {describe(value)}", key, hint=f"write `{key}: true`"
        )
    return value
