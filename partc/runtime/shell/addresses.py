"""Addresses of devices: HOST:PORT of this one as others see it, and of those that it connects to."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress

from partc.errors import RunError
from partc.format.address import has_port, is_every
from partc.format.role import Role
from partc.runtime.shell.settings import Settings


def listen_address(role: Role, settings: Settings) -> str:
    """The address that this device binds.

    Raises:
        RunError: neither the options nor the placement say where.
    """
    address = settings.listen or role.addresses.get(role.device)
    if address:
        return address
    if settings.stdio:
        return "127.0.0.1:0"
    hint = "--listen HOST:PORT, or `address` in devices.yaml"
    raise RunError("where shall this device listen?", where=role.device, hint=hint)


def cannot_listen(
    number: int | None, why: str, address: str, options: str = "--listen HOST:PORT"
) -> RunError:
    """The error of an address that cannot be bound.

    Args:
        number: the system's, of `errno`; None where it has none.
        why: the system's words.
        address: HOST:PORT.
        options: what another one is given by.
    """
    match number:
        case errno.EADDRINUSE:
            hint = f"choose another with {options}, or stop the process that has it"
        case errno.EADDRNOTAVAIL | errno.ENODEV:
            hint = f"give an address of this machine with {options}; 0.0.0.0 stands for all that it has"
        case errno.EACCES:
            hint = f"ports below 1024 need rights of their own: choose a higher one with {options}"
        case _:
            hint = f"choose another with {options}"
    return RunError(f"cannot listen: {why}", where=address, hint=hint)


def known_addresses(role: Role, given: Mapping[str, str]) -> dict[str, str]:
    """Device → HOST:PORT: those of the placement, and `given` over them.

    Raises:
        RunError: an address is missing of the source or a device that this one sends to, or is one of a device that
            the build does not have.
    """
    unknown = sorted(set(given) - set(role.addresses))
    if unknown:
        message = f"the build has no device {unknown[0]!r}"
        raise RunError(message, where="--peer", hint=", ".join(role.addresses))
    known = {name: address for name, address in {**role.addresses, **given}.items() if address}
    for name in first_peers(role):
        if name not in known:
            hint = f"--peer {name}=HOST:PORT, or `address` in devices.yaml"
            raise RunError(f"the address of {name} is not known", where=role.device, hint=hint)
    return known


def first_peers(role: Role) -> list[str]:
    """The devices that this one connects to at once: those that it sends to, and the source."""
    return sorted(set(role.send) | ({role.source} - {role.device}))


def address_towards(peer: str, listening: str, advertised: str | None) -> str:
    """HOST:PORT at which a peer and its neighbours can reach this device; empty where the system does not tell.

    A peer on this machine is reached over loopback, where nobody else reaches this device.

    Args:
        peer: HOST:PORT of the peer.
        listening: HOST:PORT that is bound.
        advertised: HOST or HOST:PORT, which the user gave.
    """
    host, _, port = listening.rpartition(":")
    if advertised:
        return advertised if has_port(advertised) else f"{advertised}:{port}"
    if not is_every(host):
        return listening
    local = _local_host(peer)
    return "" if not local or ipaddress.ip_address(local.strip("[]")).is_loopback else f"{local}:{port}"


def require_loopback(address: str) -> None:
    """Refuse an address that another machine could reach.

    Raises:
        RunError: `address` is not HOST:PORT with a loopback host.
    """
    if not is_loopback(address.rpartition(":")[0]):
        hint = "--insecure is for loopback addresses (127.0.0.1) only; leave it out to encrypt"
        raise RunError("without encryption, nothing may leave this machine", where=address, hint=hint)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone; an IPv6 one may stand in brackets."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def _local_host(peer: str) -> str:
    """The address of the interface from which a peer is reached: a UDP socket that connects sends nothing."""
    host, _, port = peer.rpartition(":")
    with suppress(OSError):
        for family, kind, _, _, place in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                found = str(probe.getsockname()[0])
            return f"[{found}]" if ":" in found else found
    return ""
