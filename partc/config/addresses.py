"""Addresses and links of the devices in devices.yaml, held against each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from partc.config.section import Section
from partc.errors import ConfigError
from partc.format.address import address_fault, is_every


def read_address(section: Section) -> str | None:
    """The `address` of a device, host:port; None where it is given at start."""
    if section.data.get("address") is None:
        return None
    address = section.text("address")
    if (fault := address_fault(address)) is not None:
        raise section.error(fault[0], "address", hint=fault[1])
    host, _, port = address.rpartition(":")
    if is_every(host):
        raise section.error(
            f"`{address}` is every interface of the device, and no address at which the others reach it",
            "address",
            hint=f"write an address such as 192.0.2.7:{port}, as the others reach it; "
            f"`partc-runner --listen {address}` listens on every interface",
        )
    return address


def check_addresses(devices: Section, addresses: Mapping[str, str | None]) -> None:
    """Refuse one address of two devices: the second runner could not listen there."""
    by_address: dict[str, list[str]] = {}
    for name, address in addresses.items():
        if address is not None:
            by_address.setdefault(address.lower(), []).append(name)
    for address, names in by_address.items():
        for first, second in pairwise(names):
            port = int(address.rpartition(":")[2])
            other = f"{address.rpartition(':')[0]}:{port + 1 if port < 65535 else port - 1}"
            raise devices.section(second).error(
                f"`{first}` and `{second}` have one address, {address}",
                "address",
                hint=f"give each its own; two devices of one machine differ in the port: {other}",
            )


def require_links(
    devices: Collection[str], has_default: bool, linked: Collection[tuple[str, str]], where: str
) -> None:
    """Refuse devices that the file gives no link, not even `none`: nothing could be sent to them.

    Raises:
        ConfigError: names the devices, and the place `where` in the file.
    """
    if has_default or len(devices) < 2:
        return
    alone = [name for name in devices if not any(name in pair for pair in linked)]
    if alone:
        names = ", ".join(f"`{name}`" for name in alone)
        raise ConfigError(
            f"{names} {'has' if len(alone) == 1 else 'have'} no link to another device",
            where=where,
            hint="add `links: {default: {bandwidth: 100 Mbit/s, latency: 2 ms}}`; `partc profile --target FILE` "
            "measures links, and a pair that is not connected is written as `a-b: none`",
        )
