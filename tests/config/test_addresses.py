"""Addresses of devices: every way to write one wrong has a name and a remedy; two devices have two."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import ConfigError
from partc.format.address import address_fault

_FIGURES = "target: ort, arch: x86_64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GiB"


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.7:5555",
        "board.local:1",
        "my_board-2:65535",
        "[2001:db8::7]:5555",
        "[::1]:5555",
        "[fe80::7%eth0]:5555",
        "[fe80::7%3]:5555",
        "[::ffff:192.0.2.7]:5555",
    ],
)
def test_right_addresses(address: str) -> None:
    assert address_fault(address) is None


@pytest.mark.parametrize(
    ("address", "fault", "remedy"),
    [
        ("board", "is not host:port", "write board:5555"),
        ("5601", "is not host:port", "write 192.0.2.7:5601"),
        ("192.0.2.7", "is not host:port", "write 192.0.2.7:5555"),
        ("192.0.2.7:0", "is not host:port", "1 to 65535"),
        ("192.0.2.7:70000", "is not host:port", "1 to 65535"),
        (":5555", "is not host:port", "write 192.0.2.7:5555"),
        ("tcp://192.0.2.7:5555", "is a URL", "write 192.0.2.7:5555"),
        ("http://board:5555/", "is a URL", "write board:5555"),
        ("::1", "without brackets and port", r"write [::1]:5555"),
        ("2001:db8::7", "without brackets and port", r"write [2001:db8::7]:5555"),
        ("2001:db8::7:5555", "without brackets", "[2001:db8::7]:5555 if 5555 is its port"),
        ("2001:db8:0:0:0:0:0:7:5555", "without brackets", "write [2001:db8:0:0:0:0:0:7]:5555"),
        ("[::1]", "without port", "write [::1]:5555"),
        ("fe80::7%eth0", "without brackets and port", "write [fe80::7%eth0]:5555"),
        ("[fe80::7]:5555", "without the interface (zone)", "write [fe80::7%eth0]:5555"),
        ("[fe80::7%25eth0]:5555", "zone as URLs have it", "write [fe80::7%eth0]:5555"),
        ("[board]:5555", "no IPv6 address in its brackets", "192.0.2.7:5555"),
        ("192.0.2.7%eth0:5555", "IPv6 addresses alone", "192.0.2.7:5555"),
        ("my board:5555", "is not host:port", "192.0.2.7:5555"),
        ("192.0.2.300:5555", "no IPv4 address", "192.0.2.7:5555"),
        ("192.0.2:5555", "no IPv4 address", "192.0.2.7:5555"),
    ],
)
def test_faults_are_named(address: str, fault: str, remedy: str, tmp_path: Path) -> None:
    found = address_fault(address)
    assert found is not None and fault in found[0] and remedy in found[1], found
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, f'  a: {{{_FIGURES}, address: "{address}"}}\n')
    assert fault in caught.value.message and remedy in str(caught.value.hint)


def _load(tmp_path: Path, devices: str, links: str = "") -> DevicesConfig:
    path = tmp_path / "devices.yaml"
    path.write_text(f"source: a\ndevices:\n{devices}{links}")
    return load_devices(path)


@pytest.mark.parametrize("second", ["192.0.2.7:5555", "[2001:DB8::7]:5555"])
def test_two_devices_with_one_address(second: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`a` and `b` have one address") as caught:
        _load(
            tmp_path,
            f'  a: {{{_FIGURES}, address: "{second.lower()}"}}\n  b: {{{_FIGURES}, address: "{second}"}}\n',
        )
    assert caught.value.hint is not None and ":5556" in caught.value.hint
    assert caught.value.where is not None and "devices.yaml:4: devices.b.address" in caught.value.where


TWO = f"  a: {{{_FIGURES}}}\n  b: {{{_FIGURES}}}\n"


@pytest.mark.parametrize(
    "links",
    [
        "links: {default: {bandwidth: 1 Gbit/s, latency: 1 ms}}\n",
        "links: {a-b: {bandwidth: 1 Gbit/s, latency: 1 ms}}\n",
        "links: {a-b: none}\n",
    ],
)
def test_devices_with_links(links: str, tmp_path: Path) -> None:
    _load(tmp_path, TWO, links).require_links(tmp_path / "d.yaml")


LINKS = "links: {a-b: {bandwidth: 1 Gbit/s, latency: 1 ms}}\n"


def test_devices_without_links_are_named(tmp_path: Path) -> None:
    three = f"{TWO}  c: {{{_FIGURES}}}\n"
    with pytest.raises(
        ConfigError, match=r"`a`, `b`, `c` have no link to another device(.|\n)*default: \{bandwidth"
    ):
        _load(tmp_path, three).require_links(tmp_path / "d.yaml")
    with pytest.raises(ConfigError, match="`c` has no link"):
        _load(tmp_path, three, LINKS).require_links(tmp_path / "d.yaml")
    _load(tmp_path, f"  a: {{{_FIGURES}}}\n").require_links(tmp_path / "d.yaml")


@pytest.mark.parametrize("address", ["0.0.0.0:5555", "[::]:5555"])
def test_every_interface_is_no_address_for_others(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, f'  a: {{{_FIGURES}, address: "{address}"}}\n')
    assert f"--listen {address}" in str(caught.value)
