"""The machine that code is compiled for: instruction set, operating system, and a GPU where there is one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partc.config.profiles import PLATFORM_OF
from partc.errors import ConfigError
from partc.runtime.processor import architecture, processor_features, processor_vendor

_GPU_LIMITS = {
    "cuda": {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32},
    "opencl": {"max_threads_per_block": 256, "max_shared_memory_per_block": 32768, "thread_warp_size": 1},
}
"""Provider of a GPU → what every such device has: NVIDIA's since Maxwell; what OpenCL 1.2 demands, and phones have."""
PROVIDERS = ("cpu", *_GPU_LIMITS)
"""What computes: the processor, or a GPU through the interface of this name."""

PREFETCH = "prefetch"
"""The feature of processors that want weights asked for ahead: a Xeon of the fourth generation does, an EPYC 9004 does
not. `arch: host` goes by the maker."""
_X86_FEATURES: Mapping[str, tuple[str, ...]] = {
    "avx2": ("+avx2", "+fma"),
    "avx512": ("+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl"),
    "vnni": ("+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl", "+avx512vnni"),
    "avxvnni": ("+avxvnni",),
    PREFETCH: (),
}
_ARM_FEATURES = {
    "neon": ("+neon",),
    "dotprod": ("+neon", "+dotprod"),
    "i8mm": ("+neon", "+dotprod", "+i8mm"),
    "fp16": ("+neon", "+fullfp16"),
    "bf16": ("+neon", "+bf16"),
    "sve": ("+sve",),
}
_USUAL_ARM = ("dotprod",)
"""Processors since Cortex-A55 and A76, of 2018, have it; earlier ones take `features: [neon]`."""
_BASELINES = {
    "x86-64-v3": ("+avx2", "+fma", "+bmi", "+bmi2", "+f16c", "+lzcnt", "+movbe"),
    "generic": ("+neon",),
}
"""Features of a baseline, without those that every processor with these has; "generic" is that of aarch64."""
_LINUX_NAMES = {
    "neon": "asimd",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
}
"""LLVM's name of a feature → Linux's, where they differ."""
_INTEL = "GenuineIntel"
_GLIBC = ("libm.so.6", "libc.so.6")
_GPU = re.compile(r"sm_\d{2,3}[af]?")
_FIRST_WITH_BFLOAT16 = 80
"""The first architecture whose tensor cores multiply bfloat16."""


@dataclass(frozen=True)
class Platform:
    """A processor family with an operating system."""

    triple: str
    """The name that LLVM and linkers use."""
    baseline: str
    """LLVM's name of the least processor that the code runs on."""
    features: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Feature as users write it → what LLVM calls it and what it takes along."""
    elf: str
    """The name that lld gives to the format of its object files."""
    libraries: tuple[str, ...]
    """The system's libraries that a library names, because its undefined symbols are theirs."""
    futex: int
    """Number of the system call `futex`."""
    usual: tuple[str, ...] = ()
    """Features of code for a processor where none are named."""
    page: int = 0
    """Bytes that segments are aligned to; 0: what the linker thinks right."""

    @property
    def arch(self) -> str:
        """Processor architecture, `aarch64` for instance."""
        return self.triple.partition("-")[0]


PLATFORMS: Mapping[str, Platform] = {
    "x86_64-linux": Platform(
        "x86_64-unknown-linux-gnu", "x86-64-v3", _X86_FEATURES, "elf_x86_64", _GLIBC, 202
    ),
    "aarch64-linux-gnu": Platform(
        "aarch64-unknown-linux-gnu", "generic", _ARM_FEATURES, "aarch64linux", _GLIBC, 98, _USUAL_ARM,
    ),
    # Kernels of Android have pages of 4 or of 16 KiB.
    "aarch64-linux-android": Platform(
        "aarch64-linux-android24", "generic", _ARM_FEATURES, "aarch64linux",
        ("libm.so", "libc.so"), 98, _USUAL_ARM, 16384,
    ),
}  # fmt: skip
"""Every platform by the name that devices.yaml uses."""

ARCHITECTURES = frozenset(PLATFORM_OF)
"""Architectures of processors that there are kernels for."""


@dataclass(frozen=True)
class Machine:
    """A platform, the features that its code may use, and its GPU."""

    name: str
    platform: Platform
    features: tuple[str, ...]
    provider: str = "cpu"
    """One of `PROVIDERS`."""
    cuda: str | None = None
    """Architecture of NVIDIA's GPU (`sm_87`)."""

    @property
    def is_gpu(self) -> bool:
        """Whether a GPU computes."""
        return self.provider != "cpu"

    @property
    def most_threads(self) -> int:
        """Threads that a block may have on its GPU."""
        return _GPU_LIMITS[self.provider]["max_threads_per_block"]

    @property
    def has_tensor_cores(self) -> bool:
        """Whether its GPU multiplies matrices of bfloat16: NVIDIA's since Ampere (`sm_80`)."""
        return self.cuda is not None and int(self.cuda.strip("sm_af")) >= _FIRST_WITH_BFLOAT16

    def needs(self) -> list[str]:
        """Features that the processor must have, as /proc/cpuinfo calls them."""
        return list(dict.fromkeys(map(_linux_name, self._words())))

    def enabled(self) -> frozenset[str]:
        """Features that the code may use, as LLVM calls them."""
        return frozenset(self._words())

    def _words(self) -> list[str]:
        words = [word for name in self.features for word in self.platform.features[name]]
        return [word[1:] for word in (*_BASELINES.get(self.platform.baseline, ()), *words)]

    def target(self) -> Any:
        """The `tvm.target.Target` of this machine."""
        import tvm

        host: dict[str, object] = {
            "kind": "llvm",
            "mtriple": self.platform.triple,
            "mcpu": self.platform.baseline,
        }
        if enabled := [word for name in self.features for word in self.platform.features[name]]:
            host["mattr"] = list(dict.fromkeys(enabled))
        if not self.is_gpu:
            return tvm.target.Target(host)
        # TVM would ask the GPU of the compiling machine for its limits.
        arch = {"arch": self.cuda} if self.cuda else {}
        return tvm.target.Target({"kind": self.provider, **arch, **_GPU_LIMITS[self.provider]}, host=host)


def machine_of(arch: str, platform: str, features: Sequence[str], provider: str, cuda: str) -> Machine:
    """The machine that the options of a device describe; an empty `platform` follows from `arch`.

    Raises:
        ConfigError: there is no such platform, feature or GPU; names those there are.
    """
    name = platform or PLATFORM_OF.get(arch, arch)
    if name not in PLATFORMS:
        raise _unknown(f"the tvm target has no platform {name!r}", "platform", name, PLATFORMS)
    if arch not in ("", PLATFORMS[name].arch):
        raise ConfigError(
            f"the device is {arch}, and {name} is not",
            where="platform",
            hint=f"write `arch: {PLATFORMS[name].arch}` beside `options`, or another platform",
        )
    known = PLATFORMS[name].features
    for feature in features:
        if feature not in known:
            raise _unknown_feature(name, feature)
    if provider not in PROVIDERS:
        raise _unknown(f"the tvm target has no provider {provider!r}", "provider", provider, PROVIDERS)
    if not _GPU.fullmatch(cuda) and (cuda or provider == "cuda"):
        raise ConfigError(
            f"{cuda!r} is no architecture of a GPU", where="cuda_arch", hint="write `cuda_arch: sm_87`"
        )
    if provider != "cpu":
        return Machine(name, PLATFORMS[name], tuple(features), provider, cuda if provider == "cuda" else None)
    return Machine(name, PLATFORMS[name], tuple(features) or PLATFORMS[name].usual)


def features_of_host() -> tuple[str, ...]:
    """Every feature in the table that this machine's processor has; none where the system does not list them."""
    has = processor_features()
    known = PLATFORMS[PLATFORM_OF[architecture()]].features if architecture() in PLATFORM_OF else {}
    return tuple(
        name
        for name, words in known.items()
        if {_linux_name(word[1:]) for word in words} <= has
        and (name != PREFETCH or processor_vendor() == _INTEL)
    )


def _linux_name(feature: str) -> str:
    return _LINUX_NAMES.get(feature, feature)


def _unknown_feature(platform: str, feature: str) -> ConfigError:
    message = f"{platform} has no feature {feature!r}"
    others = {other.arch for other in PLATFORMS.values() if feature in other.features}
    if others:
        hint = f"processors of {others.pop()} have it: write `arch:` of the device beside `options`"
        return ConfigError(message, where="features", hint=hint)
    return _unknown(message, "features", feature, PLATFORMS[platform].features)


def _unknown(message: str, where: str, name: str, known: Collection[str]) -> ConfigError:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"{f'did you mean {near[0]!r}? ' if near else ''}known: {', '.join(known)}"
    return ConfigError(message, where=where, hint=hint)
