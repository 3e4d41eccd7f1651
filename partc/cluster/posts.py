"""What actors are told: plain data without a key, a prompt or a tensor, which Ray may carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partc.config.fleet import FleetFile, RingPlace
from partc.errors import ConfigError
from partc.format.names import device_folders
from partc.format.role import source_role


@dataclass(frozen=True)
class Post:
    """The runner of a device."""

    ring: str
    device: str
    resource: str
    """The resource of the node that it runs on."""
    folder: str
    """Path of the device's folder there."""
    listen: str
    """HOST:PORT."""
    peers: Mapping[str, str]
    """Device → HOST:PORT, of all devices of the ring."""
    plan_id: str
    """Of the build; another one is another post."""
    insecure: bool

    @property
    def name(self) -> str:
        """Name of its actor."""
        return f"keeper/{self.ring}/{self.device}"


@dataclass(frozen=True)
class DoorRing:
    """A ring behind the door."""

    name: str
    build: str
    """Path of the build on the door's node."""
    source: str
    """HOST:PORT of the ring's source."""
    plan_id: str
    insecure: bool


@dataclass(frozen=True)
class RingPosts:
    """A ring as actors see it."""

    door: DoorRing
    keepers: tuple[Post, ...]
    """Of the devices that run Ray."""


def posts_of(fleet: FleetFile) -> dict[str, RingPosts]:
    """Ring → its actors.

    Raises:
        BundleError: a build is none, or is damaged.
        ConfigError: a device is unknown, has no address, or has that of another one.
    """
    found = {name: _posts(ring) for name, ring in fleet.rings.items()}
    taken: dict[str, str] = {}
    for name, ring in fleet.rings.items():
        for device, address in found[name].keepers[0].peers.items() if found[name].keepers else ():
            other = taken.setdefault(address, f"{name}/{device}")
            if other != f"{name}/{device}":
                hint = f"give {device} another `address` under `devices` of its ring"
                raise ConfigError(f"{device} and {other} are both at {address}", where=ring.where, hint=hint)
    return found


def _posts(ring: RingPlace) -> RingPosts:
    role = source_role(ring.build)
    devices = [folder.name for folder in device_folders(ring.build)]
    if unknown := sorted(set(ring.devices) - set(devices)):
        hint = f"its devices: {', '.join(devices)}"
        raise ConfigError(f"the build has no device {unknown[0]!r}", where=f"{ring.where}.devices", hint=hint)
    peers = {device: ring.place(device).address or role.addresses.get(device) for device in devices}
    if missing := [device for device, address in peers.items() if not address]:
        hint = f"write `devices: {{{missing[0]}: {{address: HOST:PORT}}}}` here, or `address` in devices.yaml"
        raise ConfigError(f"nobody says where {missing[0]} is", where=ring.where, hint=hint)
    known = {device: address for device, address in peers.items() if address}
    keepers = tuple(
        Post(
            ring=ring.name,
            device=device,
            resource=ring.place(device).resource,
            folder=str(ring.folder / device),
            listen=known[device],
            peers=known,
            plan_id=role.plan_id,
            insecure=ring.insecure,
        )
        for device in devices
        if ring.place(device).has_keeper
    )
    door = DoorRing(ring.name, str(ring.build), known[role.source], role.plan_id, ring.insecure)
    return RingPosts(door, keepers)
