"""Addresses of devices, HOST:PORT: what is one, and what is wrong with a text that is none.

| HOST | |
| --- | --- |
| a name or an IPv4 address | `board.local:5555`, `192.0.2.7:5555` |
| an IPv6 address, in brackets | `[2001:db8::7]:5555` |
| an IPv6 address of one link, with the interface it is reached by | `[fe80::7%eth0]:5555` |
"""

from __future__ import annotations

import ipaddress
import re

EXAMPLE = "192.0.2.7:5555 or [2001:db8::7]:5555"
"""Addresses as they are written, for hints."""
_PORT = 5555
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ZONE = re.compile(r"^fe[89ab][0-9a-f]:", re.IGNORECASE)


def has_port(text: str) -> bool:
    """Whether this is HOST:PORT; an IPv6 HOST stands in brackets."""
    host, colon, port = text.rpartition(":")
    is_host = bool(host and colon) and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    return is_host and port.isascii() and port.isdigit() and int(port) < 65536


def is_six(address: str) -> bool:
    """Whether the host of HOST:PORT is an IPv6 address."""
    return address.startswith("[")


def is_every(host: str) -> bool:
    """Whether a host stands for all interfaces of a machine; an IPv6 one may stand in brackets."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == "*"


def address_fault(text: str) -> tuple[str, str] | None:
    """The fault of a text that should be HOST:PORT, and the remedy; None where it has none."""
    if _SCHEME.match(text):
        plain = _SCHEME.sub("", text).rstrip("/")
        return f"`{text}` is a URL, and an address is host:port", f"write {plain}"
    if _is_six(text) or (text.startswith("[") and text.endswith("]") and _is_six(text[1:-1])):
        plain = text.strip("[]")
        both = plain.rpartition(":")
        or_port = ""
        if not text.startswith("[") and _is_six(both[0]) and both[2].isdigit():
            or_port = f"[{both[0]}]:{both[2]} if {both[2]} is its port, else "
        return (
            f"`{text}` is an IPv6 address without {'brackets and ' * (text[0] != '[')}port",
            f"write {or_port}[{plain}]:{_PORT}",
        )
    host, colon, port = text.rpartition(":")
    if colon and _is_six(host) and not host.startswith("["):
        return f"`{text}` has an IPv6 address without brackets", f"write [{host}]:{port}"
    if not has_port(text) or int(port) == 0:
        right = f"{text}:{_PORT}" if ":" not in text and text else EXAMPLE
        if text.isascii() and text.isdigit():
            right = f"192.0.2.7:{text} or [2001:db8::7]:{text}"
        return f"`{text}` is not host:port", f"write {right}; ports are 1 to 65535"
    return _host_fault(text, host)


def _host_fault(text: str, host: str) -> tuple[str, str] | None:
    if host.startswith("["):
        inner = host[1:-1]
        if "%25" in inner:
            return f"`{text}` has its zone as URLs have it", f"write {text.replace('%25', '%')}"
        if not _is_six(inner):
            return f"`{text}` has no IPv6 address in its brackets", f"write {EXAMPLE}"
        if _ZONE.match(inner) and "%" not in inner:
            port = text.rpartition(":")[2]
            return (
                f"`{text}` is an address of one link, without the interface (zone) that it is reached by",
                f"write [{inner}%eth0]:{port}, with the name of the interface in place of eth0",
            )
        return None
    if "%" in host:
        return f"`{text}` has a zone, which IPv6 addresses alone have", f"write {EXAMPLE}"
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        return f"`{text}` is not host:port", f"write {EXAMPLE}"
    if re.fullmatch(r"[0-9.]+", host) and not _is_four(host):
        return f"`{text}` has no IPv4 address", "write four numbers of 0 to 255, such as 192.0.2.7:5555"
    return None


def _is_four(host: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(host), ipaddress.IPv4Address)
    except ValueError:
        return False


def _is_six(host: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(host), ipaddress.IPv6Address)
    except ValueError:
        return False
