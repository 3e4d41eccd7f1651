"""The device's processor, as far as it decides how onnxruntime multiplies integers of 8 bits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from partc.errors import ConfigError
from partc.runtime.processor import processor_features

FEATURES = {"vnni": "avx512_vnni", "avxvnni": "avx_vnni"}
"""Features with which x86 processors add products of 8 bits in 32 bits, as devices.yaml and as Linux call them."""
_OTHERS = ("avx2", "avx512", "neon", "dotprod", "i8mm", "fp16", "bf16", "sve")
"""Features that the tvm target asks about; a device may change its target and keep them."""


def check_features(features: Iterable[str]) -> None:
    """Raise a ConfigError for a feature that is not known."""
    known = (*FEATURES, *_OTHERS)
    for feature in features:
        if feature not in known:
            near = difflib.get_close_matches(feature.lower(), known, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"there is no feature {feature!r}", where="features", hint=f"{meant}known: {', '.join(known)}"
            )


def has_exact_products(arch: str, features: Iterable[str]) -> bool:
    """Whether sums of two products of 8 bits cannot overflow; of an x86 processor only its features can say so."""
    return arch == "aarch64" or not FEATURES.keys().isdisjoint(features)


def features_of_host() -> tuple[str, ...]:
    """Those of `FEATURES` that the processor of this machine has."""
    has = processor_features()
    return tuple(name for name, linux in FEATURES.items() if linux in has)
