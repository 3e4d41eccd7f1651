"""Profiles of devices give code that the device runs: what processors have is as Linux lists it in /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.devices import load_devices
from partc.config.profiles import profile_names
from partc.pipeline.registry import load_target
from targets.tvm.target import TvmTarget

_ARMV8 = frozenset(["fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "cpuid"])
_DOT = _ARMV8 | frozenset(["atomics", "fphp", "asimdhp", "asimdrdm", "lrcpc", "dcpop", "asimddp"])
_V3 = frozenset(
    [
        "avx",
        "avx2",
        "bmi1",
        "bmi2",
        "f16c",
        "fma",
        "movbe",
        "abm",
        "sse4_1",
        "sse4_2",
        "ssse3",
        "popcnt",
        "cx16",
    ]
)
PROCESSORS = {
    "cubot_x30": _ARMV8,  # Cortex-A73, A53
    "jetson_nano_l": _ARMV8,  # Cortex-A57
    "jetson_nano_m": _ARMV8,
    "jetson_nano_s": _ARMV8,
    "raspberry_pi_4": _ARMV8,  # Cortex-A72
    "raspberry_pi_5": _DOT,  # Cortex-A76
    "orange_pi_5": _DOT,  # Cortex-A76, A55
    "jetson_orin_nano": _DOT,  # Cortex-A78AE
    "jetson_orin_nx": _DOT,
    "jetson_agx_orin": _DOT,
    "pixel_7_pro": _DOT,  # Cortex-X1, A78, A55
    "pixel_8": _DOT,
    "galaxy_s24_ultra": _DOT,
    "oneplus_13": _DOT,
    "rtx_3090": _V3,
    "intel_n100": _V3 | {"avx_vnni"},
    "ryzen_7_7840u": _V3
    | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"]),
}
"""Profile → the features of its least core that matter here."""
PHONES = frozenset(("cubot_x30", "pixel_7_pro", "pixel_8", "galaxy_s24_ultra", "oneplus_13"))
GPUS = {
    "jetson_orin_nano": "sm_87",
    "jetson_orin_nx": "sm_87",
    "jetson_agx_orin": "sm_87",
    "rtx_3090": "sm_86",
}


def target_of(profile: str, folder: Path, more: str = "") -> TvmTarget:
    """The target of a device of which nothing else is known."""
    text = f"source: a\ndevices: {{a: {{profile: {profile}, target: tvm{more}}}}}\n"
    (folder / "devices.yaml").write_text(text)
    device = load_devices(folder / "devices.yaml").devices["a"]
    target = load_target("tvm", device.target_options)
    assert isinstance(target, TvmTarget)
    return target


def test_every_profile_has_its_processor_here() -> None:
    assert sorted(PROCESSORS) == profile_names()


@pytest.mark.parametrize("profile", PROCESSORS)
def test_code_needs_what_the_device_has(profile: str, tmp_path: Path) -> None:
    machine = target_of(profile, tmp_path, ", provider: cpu").machine
    assert set(machine.needs()) <= PROCESSORS[profile]
    assert ("android" in machine.name) == (profile in PHONES)


@pytest.mark.parametrize("profile", GPUS)
def test_code_is_for_its_gpu(profile: str, tmp_path: Path) -> None:
    assert target_of(profile, tmp_path).machine.cuda == GPUS[profile]


def test_what_the_file_says_comes_first(tmp_path: Path) -> None:
    found = target_of("raspberry_pi_4", tmp_path, ", options: {features: [dotprod]}")
    assert found.features == ("dotprod",)
    other = target_of("pixel_7_pro", tmp_path, ", arch: x86_64")  # another device, for all that is known
    assert other.machine.name == "x86_64-linux"
