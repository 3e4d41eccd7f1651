"""Kinds of devices: those that can change places without changing any plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partc.config.devices import ANSWER, DeviceConfig, DevicesConfig, Link
from partc.errors import ConfigError

Figures = tuple[object, ...]
Links = Mapping[tuple[str, bool], Link | None]
"""(other device, whether the link goes to it) → the link, where it is not the default."""


@dataclass(frozen=True)
class Kind:
    """Devices that are alike."""

    members: tuple[str, ...]
    """In the order of devices.yaml; the first stands for all."""

    @property
    def name(self) -> str:
        """Name of the first."""
        return self.members[0]


def check_fleet(devices: DevicesConfig, where: str) -> None:
    """Refuses what devices.yaml says of one ring alone.

    Raises:
        ConfigError: it has `place`, `pin`, `keep`, `survive` or `overlap`.
    """
    given = {
        "place": devices.place,
        "pin": devices.pin,
        "keep": devices.keep == ANSWER,
        "survive": devices.survive != "none",
        "overlap": devices.overlap,
    }
    for key, value in given.items():
        if value:
            raise ConfigError(
                f"`{key}` is for one ring, and a fleet has several",
                where=f"{where}: {key}",
                hint=f"remove `{key}`; write it in the devices.yaml of each ring",
            )


def kinds_of(devices: DevicesConfig) -> tuple[Kind, ...]:
    """The kinds, in the order of their first devices.

    Two devices are alike where their figures are equal (names, addresses and the runner's program aside) and the
    links stay the same when they change places, which is an equivalence: all pairs of a kind have the same link.
    Only links of their own are compared, so that a fleet on one default link takes O(D), and others O(D K L) for
    K kinds and L links of a device.
    """
    own = _own_links(devices)
    found: dict[Figures, list[list[str]]] = {}
    for name, device in devices.devices.items():
        alike = found.setdefault(_figures(devices, device), [])
        same = next((names for names in alike if _exchangeable(own, names[0], name)), None)
        if same is None:
            alike.append([name])
        else:
            same.append(name)
    order = {name: place for place, name in enumerate(devices.devices)}
    groups = (tuple(names) for alike in found.values() for names in alike)
    return tuple(Kind(names) for names in sorted(groups, key=lambda names: order[names[0]]))


def reduced(devices: DevicesConfig, kinds: Sequence[Kind], most: int) -> DevicesConfig:
    """The devices with at most so many of each kind: enough for any ring of `most` devices."""
    kept = {name: devices.devices[name] for kind in kinds for name in kind.members[:most]}
    links = {ends: link for ends, link in devices.links.items() if kept.keys() >= set(ends)}
    ban = {name: ranges for name, ranges in devices.ban.items() if name in kept}
    return replace(devices, devices=kept, links=links, ban=ban, source=next(iter(kept)))


def _own_links(devices: DevicesConfig) -> dict[str, dict[tuple[str, bool], Link | None]]:
    own: dict[str, dict[tuple[str, bool], Link | None]] = {name: {} for name in devices.devices}
    for (sender, receiver), link in devices.links.items():
        if link != devices.default_link:
            own[sender][receiver, True] = link
            own[receiver][sender, False] = link
    return own


def _figures(devices: DevicesConfig, device: DeviceConfig) -> Figures:
    """Everything that a plan reads of a device, as a key."""
    plain = replace(device, name="", address=None, runner=None, chosen={}, options={})
    fields = tuple(value for key, value in vars(plain).items() if key not in ("options", "chosen"))
    times = devices.times_of(device.name)
    measured = times and (times.call_overhead_s, times.step_overhead_s, times.hop_overhead_s)
    seconds = tuple(sorted(times.seconds.items())) if times else ()
    banned = repr(devices.ban.get(device.name, ()))
    return *map(repr, fields), repr(sorted(device.options.items())), measured, seconds, banned


def _exchangeable(own: Mapping[str, Links], a: str, b: str) -> bool:
    """Whether every link stays the same when two devices change places."""
    first = {key: link for key, link in own[a].items() if key[0] != b}
    second = {key: link for key, link in own[b].items() if key[0] != a}
    return (
        first == second
        and own[a].get((b, True)) == own[b].get((a, True))
        and (((b, True) in own[a]) == ((a, True) in own[b]))
    )
