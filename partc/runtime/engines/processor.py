"""The processor of this machine, held against what a library was compiled for."""

from __future__ import annotations

from pathlib import Path

from partc.errors import BundleError
from partc.format.build import LibraryOptions
from partc.runtime.processor import architecture, processor_features

_LEAST = {
    "aarch64": "write `features: [neon]` in the `options` of",
    "x86_64": "leave `features` and `arch: host` out of",
}
"""Architecture → how to get code for the baseline of its processors."""


def check_processor(options: LibraryOptions, path: Path) -> None:
    """Make sure that the code in `path` is for a processor like this one; other code would end the process.

    Raises:
        BundleError: it is for another architecture, or uses features that this processor has not.
    """
    here = architecture()
    if options.platform.partition("-")[0] != here:
        message = f"the library is for {options.platform}, and this machine is {here}"
        hint = "copy the folder to the device that it is for"
        if here in _LEAST:
            hint = f"{hint}, or compile with `arch: {here}`"
        raise BundleError(message, where=str(path), hint=hint)
    features = processor_features()
    missing = [name for name in options.needs if features and name not in features]
    if missing:
        message = f"the library uses {', '.join(missing)}, which this processor has not"
        hint = f"{_LEAST[here]} the device in devices.yaml, or write `target: ort` there, and compile again"
        raise BundleError(message, where=str(path), hint=hint)
