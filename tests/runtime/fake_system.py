"""A folder that looks like /proc and /sys of a machine, for PARTC_SYS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FakeSystem:
    """The root of such a folder; every method writes one reading."""

    root: Path

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{file.name}.fresh")
        fresh.write_text(f"{text}\n", encoding="utf-8")
        fresh.replace(file)  # whoever reads meanwhile finds the old text or the new one

    def battery(self, percent: int, status: str = "Discharging") -> None:
        self.write("sys/class/power_supply/BAT0/type", "Battery")
        self.write("sys/class/power_supply/BAT0/capacity", str(percent))
        self.write("sys/class/power_supply/BAT0/status", status)

    def mains(self, online: bool) -> None:
        self.write("sys/class/power_supply/AC/type", "Mains")
        self.write("sys/class/power_supply/AC/online", str(int(online)))

    def temperature(self, celsius: float, zone: int = 0) -> None:
        self.write(f"sys/class/thermal/thermal_zone{zone}/temp", str(round(celsius * 1000)))

    def memory(self, available_bytes: int) -> None:
        self.write("proc/meminfo", f"MemTotal: 999999 kB\nMemAvailable: {available_bytes // 1024} kB")

    def pressure(self, kind: str, percent: float) -> None:
        text = f"some avg10={percent} avg60=0.00 avg300=0.00 total=0\nfull avg10=99.00 avg60=0.00"
        self.write(f"proc/pressure/{kind}", text)
