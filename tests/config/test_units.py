from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.config import units
from partc.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("6 GiB", 6 * 2**30),
        ("6 GB", 6_000_000_000),
        ("6GiB", 6 * 2**30),
        ("0.5 TB", 500_000_000_000),
        ("12 kB", 12_000),
        ("12 KiB", 12_288),
        ("1.5e3 MiB", 1500 * 2**20),
        ("7 B", 7),
        ("1 TiB", 2**40),
    ],
)
def test_bytes(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100 Mbit/s", 12.5e6),
        ("100 MB/s", 100e6),
        ("1 Gbit/s", 125e6),
        ("204.8 GB/s", 204.8e9),
        ("3.35 TB/s", 3.35e12),
        ("8 bit/s", 1.0),
    ],
)
def test_bandwidth(text: str, rate: float) -> None:
    assert units.parse_bandwidth(text) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 ms", 2e-3),
        ("3 us", 3e-6),
        ("3 \u00b5s", 3e-6),
        ("3 \u03bcs", 3e-6),
        ("5 ns", 5e-9),
        ("1 s", 1),
        ("0 s", 0),
    ],
)
def test_seconds(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds, rel=1e-15)


def test_flops() -> None:
    assert units.parse_flops("3.33 TFLOP/s") == pytest.approx(3.33e12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("6 GO", "is not a unit"),
        ("6 gb", "did you mean"),
        ("6", "has no unit"),
        (6, "has no unit"),
        ("-6 GB", "more than zero"),
        ("0 GB", "more than zero"),
        ("nan GB", "is not a size"),
        ("inf GB", "is not a unit|is not a size"),
        ("1e400 GB", "out of range"),
        ("1e30 TB", "0 to 1e\\+18 B"),
        ("100 Mbit/s", "is not a unit of a size"),
        ("six GB", "is not a size"),
        ("", "is not a size"),
        (None, "is not a size"),
        (True, "is not a size"),
        (["6 GB"], "is not a size"),
    ],
)
def test_refused_sizes_name_units_and_an_example(text: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        units.parse_bytes(text, where="devices.yaml:3: memory")
    assert str(caught.value).startswith("devices.yaml:3: memory: ")
    assert "GB, TB, KiB" in str(caught.value.hint) and "6 GiB" in str(caught.value.hint)


def test_nothing_takes_for_ever() -> None:
    for parse, text in ((units.parse_flops, "1e-300 FLOP/s"), (units.parse_bandwidth, "1e-9 B/s")):
        with pytest.raises(ConfigError, match="out of range"):
            parse(text)


def test_a_bandwidth_is_not_negative() -> None:
    with pytest.raises(ConfigError, match="more than zero"):
        units.parse_bandwidth("-1 Mbit/s")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (units.format_bytes(1.5 * 2**30), "1.50 GiB"),
        (units.format_bytes(512), "512 B"),
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(2**20 - 1), "1.00 MiB"),
        (units.format_seconds(0.046732), "46.7 ms"),
        (units.format_seconds(0), "0 s"),
        (units.format_seconds(3.2e-8), "32.0 ns"),
        (units.format_seconds(0.9999), "1.00 s"),
        (units.format_seconds(math.inf), "never"),
    ],
)
def test_pretty_printers(text: str, shown: str) -> None:
    assert text == shown


@given(st.floats(1e-3, 1e3), st.sampled_from(sorted(units.BYTES.units)))
def test_size_is_number_times_unit(number: float, unit: str) -> None:
    assert units.BYTES.parse(f"{number!r} {unit}") == number * units.BYTES.units[unit]


@pytest.mark.parametrize(("unit", "meant"), [("Mbps", "Mbit/s"), ("bps", "bit/s"), ("Kbps", "kbit/s")])
def test_bits_are_not_taken_for_bytes(unit: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {meant}"):
        units.parse_bandwidth(f"100 {unit}")


def test_times_that_nobody_waits_for_stay_short() -> None:
    assert units.format_seconds(1e300) == "1e+300 s"
