"""The processor of this machine, held against what a library was compiled for."""

from __future__ import annotations

from pathlib import Path

from partc.errors import BundleError
from partc.format.build import LibraryOptions
from partc.runtime.cores import architecture, processor_features

_COMPILED_FOR = ("aarch64", "x86_64")


def check_processor(options: LibraryOptions, path: Path) -> None:
    """Make sure that the code in `path` is for a processor like this one; other code would end the process.

    Raises:
        BundleError: it is for another architecture, or uses features that this processor has not.
    """
    here = architecture()
    if options.platform.partition("-")[0] != here:
        message = f"the library is for {options.platform}, and this machine is {here}"
        hint = "copy the folder to the device that it is for"
        if here in _COMPILED_FOR:
            hint = f"{hint}, or compile with `arch: {here}`"
        raise BundleError(message, where=str(path), hint=hint)
    features = processor_features()
    missing = [name for name in options.needs if features and name not in features]
    if missing:
        message = f"the library uses {', '.join(missing)}, which this processor has not"
        hint = "compile with other `features` in the options of the device, or with `target: ort`"
        raise BundleError(message, where=str(path), hint=hint)
